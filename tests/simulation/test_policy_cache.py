"""The cache under any rule: against naive lists, the LRU stack, the bound of all rules, and closed sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kvmodel.formulas.eviction import ideal_hit_tokens
from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal, Mixture
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.simulation.eviction_orders import ORDERS, Clairvoyant, Fifo, Lru, RandomVictim, Use, ValueAware
from kvmodel.simulation.policy_cache import Admitted, Cache, found_ratio, replayed, simulate_policy
from kvmodel.simulation.session_cache import RandomBursts, hit_ratio, sampled_events, simulate_sessions

HEADS = SharedPrefix.zipf(50.0, 5, 1.0)
STREAMS = [
    SessionStream(0.05, Lognormal(100.0, 0.5), Exponential(20.0), GeometricTurns(4.0), Exponential(30.0), prefix=HEADS),
    SessionStream(0.05, Constant(30.0), Constant(10.0), FixedTurns(3), Constant(20.0)),
]
PAUSES = Mixture((0.9, 0.1), (Lognormal(9.0, 1.0), Lognormal(120.0, 1.0)))
CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), PAUSES)
HEADED = replace(CHAT, prefix=SharedPrefix.zipf(4_000.0, 40, 0.9))
WINDOWS = [20.0, 45.0, 60.0, 60.0]


def entry(name, tokens, *, now, old, after, group):
    """A use of an entry: when it came in, was last used, is used next; what is new keeps no past."""
    return {"name": name, "tokens": tokens, "in": now if old is None else old["in"], "last": now, "next": after,
            "group": group}  # fmt: skip


def rank(rule, e, now, serving):
    """Smallest goes first, by a plain reading of the rule; the context before its head."""
    head = e["name"][0] == "head"
    if rule == "lru":
        return (e["last"], head)
    if rule == "fifo":
        return (e["name"] in serving, e["in"], head)
    if rule == "clairvoyant":
        return (-e["next"], head)
    window = WINDOWS[e["group"]]
    return (-(now - e["last"]) / window, e["last"], head)


def naive(events, capacity, rule, whole):
    """Entries in a plain list, searched from end to end at every step; the next use is looked up in the events."""
    cache, found = [], []
    turns = [tuple(row) for row in events.T.tolist()]

    def get(name):
        return next((e for e in cache if e["name"] == name), None)

    def next_use(column, value, i):
        return next((t[0] for t in turns[i + 1 :] if t[column] == value), np.inf)

    for i, (now, stream, key, size, head) in enumerate(turns):
        names = (("context", key), ("head", head))
        context, shared = (get(name) for name in names)
        whole_head = head < 0 or (shared is not None and shared["tokens"] == 50.0)
        found.append((context["tokens"] if context and whole_head else 0.0, shared["tokens"] if shared else 0.0))
        cache = [e for e in cache if e["name"] not in names]
        after, group = next_use(2, key, i), int(stream)
        cache.append(entry(names[0], size, now=now, old=context if whole_head else None, after=after, group=group))
        if head >= 0:
            after = next_use(4, head, i)
            cache.append(entry(names[1], 50.0, now=now, old=shared, after=after, group=group + 2))
        while (over := sum(e["tokens"] for e in cache) - capacity) > 1e-9:
            victim = min(cache, key=lambda e: rank(rule, e, now, names))
            victim["tokens"] -= victim["tokens"] if whole else min(over, victim["tokens"])
            cache = [e for e in cache if e["tokens"] > 0.0]
    return np.array(found).T


@pytest.mark.parametrize("capacity", [60.0, 300.0, 900.0])
@pytest.mark.parametrize("rule", ["lru", "fifo", "value_aware", "clairvoyant"])
def test_every_rule_equals_a_naive_list(rule, capacity):
    events = sampled_events(STREAMS, 1_000.0, np.random.default_rng(7))
    order = partial(ValueAware, WINDOWS) if rule == "value_aware" else ORDERS[rule]
    log = replayed(STREAMS, events, capacity, order)
    private, prefix = naive(events, capacity, rule, whole=False)
    assert log.found_private.shape[1] > 150 and private.sum() > 0.0
    assert np.allclose(log.found_private[0], private, atol=1e-6)
    assert np.allclose(log.found_prefix[0], prefix, atol=1e-6)


def test_fifo_of_whole_contexts_equals_a_naive_list():
    """Head first. Without heads, whose tie with their own context the naive list breaks the other way."""
    streams = [replace(STREAMS[0], prefix=None), STREAMS[1]]
    events = sampled_events(streams, 1_000.0, np.random.default_rng(7))
    log = replayed(streams, events, 400.0, Fifo, "forward")
    assert np.allclose(log.found_private[0], naive(events, 400.0, "fifo", whole=True)[0], atol=1e-6)


@pytest.mark.parametrize("touch", ["reverse", "forward"])
@pytest.mark.parametrize("retention", [np.inf, 25.0])
def test_lru_equals_the_stack(touch, retention):
    """The exact stack of all capacities at once, two streams, shared heads, one retention for all, second use.

    No capacity is a sum of the constant sizes: whether 120 tokens fit into 120 is left to rounding in the stack.
    """
    streams = [replace(stream, retention=retention) for stream in STREAMS]
    capacity = np.array([0.0, 41.3, 121.7, 403.1, 1_301.9, 1e9])
    for uses in (1, 2):
        events = sampled_events(streams, 6_000.0, np.random.default_rng(5))
        log = replayed(streams, events, capacity, Lru, touch, (1_200.0, np.inf), admitted=Admitted(uses=uses))
        stack = simulate_sessions(streams, 6_000.0, seed=5, touch=touch, second_use=uses == 2)
        for stream in (0, 1, None):
            one, other = found_ratio(log, stream), hit_ratio(stack, capacity, stream)
            assert np.allclose(np.array(one), np.array(other), atol=1e-9)
        assert log.stranded.max() == 0.0 if touch == "reverse" else log.stranded.max() > 0.0


@pytest.mark.parametrize("stream", [CHAT, HEADED], ids=["own context", "shared heads"])
def test_rules_stand_in_order(stream):
    """lru, fifo, random <= clairvoyant <= the bound of all rules <= 1, in reusable tokens, within the errors.

    One run for all rules, so their differences are much less uncertain than each is.
    """
    capacity = np.array([1.5e4, 4e4, 1e5])
    found = {}
    for name, order in {**ORDERS, "value_aware": partial(ValueAware, [60.0, 60.0])}.items():
        log = simulate_policy([stream], capacity, 6e4, 3, order)
        found[name] = (log.found_private + log.found_prefix).sum(axis=1) / (log.private + log.prefix).sum()
        error = np.hypot(found_ratio(log).private_error, found_ratio(log).prefix_error)
    bound = ideal_hit_tokens([stream], capacity)
    ideal = (bound.private + bound.prefix) / (bound.reusable_private + bound.reusable_prefix)
    for name in ("lru", "fifo", "random", "value_aware"):
        assert np.all(found[name] < found["clairvoyant"])
    assert np.all(found["clairvoyant"] <= ideal[0] + 3 * error) and np.all(ideal[0] <= 1.0)
    assert np.allclose(found["value_aware"], found["lru"], atol=1e-9)  # equal windows
    assert np.all(found["lru"] > found["fifo"])


def test_any_other_entry_is_as_likely_to_leave():
    """20,000 draws over five entries besides the two in use: 4,000 each, four standard deviations are 226."""
    order = RandomVictim(seed=2)
    for owner in range(8):
        order.touched(float(owner), Use(0, 0.0, np.inf))
    order.forgotten(3.0)
    seen = Counter(order.victim(0.0, (0.0, 7.0)) for _ in range(20_000))
    assert set(seen) == {1.0, 2.0, 4.0, 5.0, 6.0}
    assert max(abs(n - 4_000) for n in seen.values()) < 226


def test_the_turn_at_hand_leaves_last():
    for order in (Fifo(), RandomVictim()):
        for owner in (1.0, 2.0):
            order.touched(owner, Use(0, 0.0, np.inf))
        assert order.victim(0.0, (1.0,)) == 2.0
        assert order.victim(0.0, (1.0, 2.0)) == 1.0


def test_the_cache_never_holds_more_than_its_capacity():
    for name in ("fifo", "random", "clairvoyant"):
        for touch in ("reverse", "forward"):
            cache = Cache(100.0, ORDERS[name](), touch)
            for turn in range(200):
                cache.put(float(turn % 17), 3.0 + turn % 23, Use(0, float(turn), float(turn + 17)))
                cache.evict(float(turn), (float(turn % 17),))
                assert sum(cache.held.values()) == pytest.approx(cache.used) and cache.used <= 100.0


def test_seeds_reproduce():
    one, two, other = (
        simulate_policy([HEADED], 5e4, 5e3, seed, RandomVictim, admitted=Admitted(probability=0.5), deleted=[0.5])
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one.found_private, two.found_private)
    assert not np.array_equal(one.private, other.private)


def test_a_hit_renews_the_retention_or_does_not():
    """Pauses of 20 s, 50 s of retention from the start: turns at 20 and 40 s find it, that at 60 s does not and starts
    anew. So turns 4 and 7 miss their 120 and 150 tokens, of 100, 110, ... 170 before turns 2 to 9."""
    stream = SessionStream(0.02, Constant(100.0), Constant(10.0), FixedTurns(9), Constant(20.0), retention=50.0)
    kept = found_ratio(simulate_policy([stream], 1e9, 2e4, 1))
    fixed = simulate_policy([stream], 1e9, 2e4, 1, renewed=False)
    assert kept.private[0] == 1.0
    missed = (120.0 + 150.0) / sum(range(100, 180, 10))
    assert found_ratio(fixed).private[0] == pytest.approx(1.0 - missed, abs=0.01)
    assert set(np.unique(fixed.private[fixed.found_private[0] == 0.0])) == {0.0, 120.0, 150.0}


def test_deleted_sessions_leave_their_room_to_the_others():
    """With all deleted only the waiting contexts take room; they are 0.05/s of 8 turns and pauses of 25 s."""
    capacity = np.array([1e4, 3e4, 6e4])
    found = [found_ratio(simulate_policy([CHAT], capacity, 4e4, 2, deleted=[d])).private for d in (0.0, 0.5, 1.0)]
    assert np.all(found[0] < found[1]) and np.all(found[1] < found[2])
    finished = CHAT.finished_moments[1] * CHAT.arrival_rate * 1e9
    everything = found_ratio(simulate_policy([CHAT], finished, 4e4, 2, deleted=[1.0])).private
    assert everything[0] == 1.0


def test_admission_by_coin_by_length_and_by_use():
    """With room for everything: a coin lets its share of tokens in, use k finds nothing before turn k + 1, and a
    minimum nothing that is shorter."""
    coin = simulate_policy([CHAT], 1e9, 1e5, 2, admitted=Admitted(probability=0.3))
    seen = found_ratio(coin)
    assert abs(seen.private[0] - 0.3) < 4 * seen.private_error[0] < 0.1
    fixed = replace(CHAT, first=Constant(100.0), step=Constant(10.0), turns=FixedTurns(6))
    third = simulate_policy([fixed], 1e9, 1e4, 2, admitted=Admitted(uses=3))
    long = simulate_policy([fixed], 1e9, 1e4, 2, admitted=Admitted(minimum=125.0))
    assert np.array_equal(third.found_private[0] > 0, third.private >= 120.0)
    assert np.array_equal(long.found_private[0] > 0, long.private >= 125.0)


def test_pinned_heads_are_always_there_and_take_their_room():
    """Pinned heads leave what they do not take to the sessions, which then find what they find alone."""
    room, held = 5e4, 40 * 4_000.0
    log = simulate_policy([HEADED], room + held, 2e4, 4, pinned=[HEADED.prefix])
    assert np.array_equal(log.found_prefix[0], log.prefix)
    alone = simulate_policy([HEADED], room + held, 2e4, 4)
    assert found_ratio(log).private[0] < found_ratio(alone).private[0]
    half = simulate_policy([HEADED], held / 2, 2e4, 4, pinned=[HEADED.prefix])
    assert found_ratio(half).prefix[0] == pytest.approx(0.5) and found_ratio(half).private[0] == 0.0


def test_contexts_behind_a_lost_head_are_of_no_use():
    log = simulate_policy([HEADED], 6e4, 2e4, 4, RandomVictim)
    assert log.stranded.sum() > 0.01 * log.private.sum()
    assert np.all(log.found_private[0][log.stranded[0] > 0] == 0.0)


def test_what_is_not_used_again_is_not_kept():
    """Clairvoyance keeps nothing of sessions of one turn: the other stream has the cache to itself."""
    once = SessionStream(1.0, Constant(5_000.0))
    both = found_ratio(simulate_policy([CHAT, once], 3e4, 4e4, 1, Clairvoyant), stream=0)
    alone = found_ratio(simulate_policy([CHAT], 3e4, 4e4, 1, Clairvoyant))
    assert both.private[0] == pytest.approx(alone.private[0], abs=3 * alone.private_error[0])
    assert both.private[0] > 2 * found_ratio(simulate_policy([CHAT, once], 3e4, 4e4, 1), stream=0).private[0]


def test_random_bursts_have_their_rate_their_share_and_their_length():
    """The mean rate is the stated one, and arrivals in a window t vary as those of a Poisson process modulated by two
    levels: rate t + 2 rate^2 v m (t - m (1 - exp(-t/m))), v the variance of the level and 1/m the sum of the two exit
    rates, from the covariance v exp(-u/m) of the level (Cox and Isham, Point Processes, 1980)."""
    bursts, window, rate = RandomBursts(0.2, 4.0, 50.0), 200.0, 2.0
    times = bursts.times(rate, 4e5, np.random.default_rng(1))
    counts = np.histogram(times, np.arange(0.0, 4e5 + 1, window))[0]
    memory = 1.0 / (1 / 50.0 + 1 / 200.0)
    spread = 0.2 * 16.0 + 0.8 * 0.25**2 - 1.0
    mean = rate * window
    variance = mean + rate**2 * 2.0 * spread * memory * (window - memory * -np.expm1(-window / memory))
    assert counts.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / len(counts)) * 1.3)  # windows correlate
    assert counts.var() == pytest.approx(variance, rel=0.15)  # standard error of 2,000 counts, skewed: 4 %
