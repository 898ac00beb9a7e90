"""The cache under any rule: against naive lists, the LRU stack, the bound of all rules, and closed sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal, Mixture
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.simulation.eviction_orders import ORDERS, Clairvoyant, Fifo, Lru, RandomVictim, Use, ValueAware
from kvmodel.simulation.policy_cache import found_ratio, replayed, simulate_policy
from kvmodel.simulation.session_cache import RandomBursts, hit_ratio, sampled_events, simulate_sessions
from kvmodel.simulation.tier_chain import Admitted, Cache

HEADS = SharedPrefix.zipf(50.0, 5, 1.0)
STREAMS = [
    SessionStream(0.05, Lognormal(100.0, 0.5), Exponential(20.0), GeometricTurns(4.0), Exponential(30.0), prefix=HEADS),
    SessionStream(0.05, Constant(30.0), Constant(10.0), FixedTurns(3), Constant(20.0)),
]
PAUSES = Mixture((0.9, 0.1), (Lognormal(9.0, 1.0), Lognormal(120.0, 1.0)))
CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), PAUSES)
HEADED = replace(CHAT, prefix=SharedPrefix.zipf(4_000.0, 40, 0.9))
WINDOWS = [20.0, 45.0, 60.0, 60.0]
NESTED = [replace(STREAMS[0], prefix=SharedPrefix.zipf(70.0, 3, 0.5, under=HEADS)), STREAMS[1]]


def entry(name, tokens, *, now, old, after, group, rank):
    """A use of an entry: when it came in, was last used, is used next; what is new keeps no past."""
    return {"name": name, "tokens": tokens, "in": now if old is None else old["in"], "last": now, "next": after,
            "group": group, "rank": rank}  # fmt: skip


def first_to_go(rule, e, now, serving):
    """Smallest goes first, by a plain reading of the rule; what is further back in the prompt before what it needs."""
    if rule == "lru":
        return (e["last"], e["rank"])
    if rule == "fifo":
        return (e["name"] in serving, e["in"], e["rank"])
    if rule == "clairvoyant":
        return (-e["next"], e["rank"])
    window = (WINDOWS + [60.0] * 4)[e["group"]]
    return (-(now - e["last"]) / window, e["last"], e["rank"])


def naive(streams, events, capacity, rule, whole):
    """Entries in a plain list, searched from end to end at every step; the next use is looked up in the events. Found
    of the context, then of each head."""
    cache, found = [], []
    turns = [tuple(row) for row in events.T.tolist()]

    def get(name):
        return next((e for e in cache if e["name"] == name), None)

    for i, (now, stream, key, size, *chain) in enumerate(turns):
        lengths = [float(head.tokens) for head in streams[int(stream)].heads]
        parts = [("head", head, length) for head, length in zip(chain, lengths, strict=False)]
        old, row, usable = {}, [], True
        for kind, owner, length in [*parts, ("context", key, np.inf)]:
            held = get((kind, owner)) if usable else None
            old[kind, owner] = held
            row.append(held["tokens"] if held else 0.0)
            usable = row[-1] >= length
        found.append([row[-1], *row[:-1], *[0.0] * (len(chain) - len(parts))])
        cache = [e for e in cache if e["name"] not in old]
        uses = [("context", key, size, 2, 0)]
        uses += [(*part, 4 + level, 1 + level) for level, part in enumerate(parts)][::-1]
        for rank, (kind, owner, tokens, column, level) in enumerate(uses):
            after = next((t[0] for t in turns[i + 1 :] if t[column] == owner), np.inf)
            group, name = int(stream) + level * len(streams), (kind, owner)
            cache.append(entry(name, tokens, now=now, old=old[name], after=after, group=group, rank=rank))
        while (over := sum(e["tokens"] for e in cache) - capacity) > 1e-9:
            victim = min(cache, key=lambda e: first_to_go(rule, e, now, old))
            victim["tokens"] -= victim["tokens"] if whole else min(over, victim["tokens"])
            cache = [e for e in cache if e["tokens"] > 0.0]
    return np.array(found).T


@pytest.mark.parametrize("capacity", [140.0, 300.0, 900.0])
@pytest.mark.parametrize("streams", [STREAMS, NESTED], ids=["one level", "two levels"])
@pytest.mark.parametrize("rule", ["lru", "fifo", "value_aware", "clairvoyant"])
def test_every_rule_equals_a_naive_list(rule, streams, capacity):
    events = sampled_events(streams, 1_000.0, np.random.default_rng(7))
    windows = WINDOWS + [60.0] * (len(events) - 5) * len(streams)
    order = partial(ValueAware, windows) if rule == "value_aware" else ORDERS[rule]
    log = replayed(streams, events, capacity, order)
    private, *heads = naive(streams, events, capacity, rule, whole=False)
    assert log.found_private.shape[1] > 150 and private.sum() > 0.0
    assert np.allclose(log.found_private[0], private, atol=1e-6)
    assert np.allclose(log.found_heads[0], heads, atol=1e-6)


def test_fifo_of_whole_contexts_equals_a_naive_list():
    """Head first. Without heads, whose tie with their own context the naive list breaks the other way."""
    streams = [replace(STREAMS[0], prefix=None), STREAMS[1]]
    events = sampled_events(streams, 1_000.0, np.random.default_rng(7))
    log = replayed(streams, events, 400.0, Fifo, "forward")
    assert np.allclose(log.found_private[0], naive(streams, events, 400.0, "fifo", whole=True)[0], atol=1e-6)


@pytest.mark.parametrize("touch", ["reverse", "forward"])
@pytest.mark.parametrize("retention", [np.inf, 25.0])
def test_lru_equals_the_stack(touch, retention):
    """The exact stack of all capacities at once, two streams, nested heads, one retention for all, second use.

    No capacity is a sum of the constant sizes: whether 120 tokens fit into 120 is left to rounding in the stack.
    """
    streams = [replace(stream, retention=retention) for stream in NESTED]
    capacity = np.array([0.0, 41.3, 121.7, 403.1, 1_301.9, 1e9])
    for uses in (1, 2):
        events = sampled_events(streams, 6_000.0, np.random.default_rng(5))
        log = replayed(streams, events, capacity, Lru, touch, (1_200.0, np.inf), admitted=Admitted(uses=uses))
        stack = simulate_sessions(streams, 6_000.0, seed=5, touch=touch, second_use=uses == 2)
        for stream, level in ((0, None), (1, None), (None, None), (0, 0), (0, 1)):
            one = found_ratio(log, stream, level=level)
            other = hit_ratio(stack, capacity, stream, level=level)
            assert np.allclose(np.array(one), np.array(other), atol=1e-9)
        assert log.stranded.max() == 0.0 if touch == "reverse" else log.stranded.max() > 0.0


@pytest.mark.parametrize("stream", [CHAT, HEADED], ids=["own context", "shared heads"])
def test_equal_windows_are_lru(stream):
    capacity = np.array([1.5e4, 4e4, 1e5])
    by_value = simulate_policy([stream], capacity, 2e4, 3, partial(ValueAware, [60.0, 60.0]))
    lru = simulate_policy([stream], capacity, 2e4, 3)
    assert np.allclose(by_value.found_private, lru.found_private, atol=1e-9)
    assert np.allclose(by_value.found_prefix, lru.found_prefix, atol=1e-9)


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
        simulate_policy(
            [replace(HEADED, deleted=0.5)], 5e4, 5e3, seed, RandomVictim, admitted=Admitted(probability=0.5)
        )
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
    streams = [replace(CHAT, deleted=share) for share in (0.0, 0.5, 1.0)]
    found = [found_ratio(simulate_policy([one], capacity, 4e4, 2)).private for one in streams]
    assert np.all(found[0] < found[1]) and np.all(found[1] < found[2])
    finished = CHAT.finished_moments[1] * CHAT.arrival_rate * 1e9
    everything = found_ratio(simulate_policy(streams[-1:], finished, 4e4, 2)).private
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
