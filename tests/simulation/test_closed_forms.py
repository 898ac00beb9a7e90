"""Closed forms against the event simulation on workloads of every kind, at a size that runs in seconds.

Bar of the project: largest error 0.015 over the capacities. The simulations are short, so three of their standard
errors are allowed on top; the page on reuse has the figures of long runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvmodel.formulas import reuse
from kvmodel.formulas.laws import (
    Constant,
    Empirical,
    Exponential,
    FixedTurns,
    GeometricTurns,
    Lognormal,
    Lomax,
    Mixture,
    TabulatedTurns,
)
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.formulas.varying_rates import burst_rates, level_rates
from kvmodel.simulation.policy_cache import found_ratio, simulate_policy
from kvmodel.simulation.session_cache import RandomBursts, RateCurve, hit_ratio, sampled_events, simulate_sessions

BAR = 0.015
TOOL_OR_HUMAN = Mixture((0.9, 0.1), (Lognormal(9.0, 1.0), Lognormal(120.0, 1.0)))
HEADS = SharedPrefix.zipf(4_000.0, 40, 0.9)
TOOLS = SharedPrefix.zipf(2_000.0, 8, 0.5, 2, under=HEADS)
FEW = SharedPrefix.zipf(3_000.0, 6, 0.7)
DOCUMENTS = SharedPrefix.zipf(6_000.0, 10, 1.1, 2, under=SharedPrefix.zipf(2_000.0, 4, 0.5, 2, under=FEW))
TENANTS = SharedPrefix.uniform(3_000.0, 12)  # one head, twelve groups that may not share it
CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), TOOL_OR_HUMAN)
BIG = SessionStream(1 / 250, Constant(20_000.0), Lognormal(900.0, 1.0), GeometricTurns(12.0), TOOL_OR_HUMAN)
TURNS = TabulatedTurns([4.0, 2.0, 1.0, 1.0, 0.0, 0.0, 2.0])
DRAWN = Empirical((2.0, 6.0, 9.0, 14.0, 30.0, 400.0))

STATIONARY = {
    "few large sessions": ([BIG], 6e5),
    "many small sessions": (
        [SessionStream(1.0, Lognormal(300.0, 0.8), Lognormal(40.0, 1.0), GeometricTurns(6.0), Exponential(30.0))],
        8e3,
    ),
    "heavy-tailed pauses": ([replace(CHAT, gap=Lomax(1.3, 15.0))], 1e5),
    "constant pauses": ([replace(CHAT, gap=Constant(30.0))], 8e4),
    "short and long kinds": ([replace(CHAT, arrival_rate=0.3, turns=GeometricTurns(2.0)), BIG], 4e4),
    "sessions of as many turns": ([replace(CHAT, turns=FixedTurns(6))], 8e4),
    "turns and pauses read off data": ([replace(CHAT, turns=TURNS, gap=DRAWN)], 1.5e5),
    "forty agents": ([SessionStream.of_agents(40, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap)], 2e4),
    "five agents": ([SessionStream.of_agents(5, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap)], 1.2e5),
    "agents beside arrivals": ([SessionStream.of_agents(20, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap), CHAT], 2e4),
    "shared heads": ([replace(CHAT, prefix=HEADS)], 1e5),
    "heads asked for alone": ([replace(CHAT, prefix=HEADS), SessionStream(0.3, Constant(200.0), prefix=HEADS)], 4e4),
    "tenants with a head each": ([replace(CHAT, prefix=TENANTS)], 8e4),
    "agents on shared heads": (
        [SessionStream.of_agents(30, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap, prefix=HEADS)],
        2.5e4,
    ),
    "two levels of heads": ([replace(CHAT, prefix=TOOLS)], 8e4),
    "three levels of heads": ([replace(CHAT, prefix=DOCUMENTS)], 8e4),
    "heads that end at different levels": (
        [replace(CHAT, prefix=TOOLS), replace(CHAT, prefix=HEADS, arrival_rate=0.02), SessionStream(0.02, BIG.first)],
        8e4,
    ),
    "agents on nested heads": (
        [SessionStream.of_agents(30, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap, prefix=TOOLS)],
        2.5e4,
    ),
    "retention": ([replace(CHAT, retention=40.0)], 1e5),
    "retention and heads": ([replace(CHAT, retention=100.0, prefix=HEADS)], 8e4),
}


def capacities(streams):
    """Six, from below one context to about all that is used again."""
    context = sum(float(s.finished_moments[1]) + float(s.head_tokens) for s in streams)
    return np.geomspace(0.5 * context, float(reuse.working_set_mean(streams, 300.0)) + 3.0 * context, 6)


def assert_close(found, seen, error):
    excess = np.abs(found - seen) - 3.0 * error
    assert np.all(excess <= BAR), f"{np.round(found - seen, 4)} with standard errors {np.round(error, 4)}"


# all in the order engines use, and one of each sort in the other
ORDERS = [(name, "reverse") for name in STATIONARY] + [
    (name, "forward") for name in ("few large sessions", "forty agents", "shared heads", "three levels of heads")
]


@pytest.mark.parametrize(("name", "touch"), ORDERS)
def test_within_the_bar(name, touch):
    streams, horizon = STATIONARY[name]
    capacity = capacities(streams)
    log = simulate_sessions(streams, 3.0 * horizon, seed=11, touch=touch)
    hits = reuse.hit_tokens(streams, capacity, touch)
    for i, stream in enumerate(streams):
        seen = hit_ratio(log, capacity, stream=i)
        if float(stream.turns.mean) > 1:
            assert_close(hits.private[i] / hits.reusable_private[i], seen.private, seen.private_error)
        for level in range(len(stream.heads)):
            seen = hit_ratio(log, capacity, stream=i, level=level)
            assert_close(hits.heads[level, i] / hits.reusable_heads[level, i], seen.prefix, seen.prefix_error)


@pytest.mark.parametrize("tiers", [(20_000.0, 60_000.0), (8_000.0, 20_000.0, 80_000.0)], ids=["two", "three"])
def test_tiers_are_cuts_of_one_stack(tiers):
    """Exclusive: what a tier adds is the difference of the hits down to it and down to the tier above."""
    depth = reuse.exclusive_capacities(np.array(tiers))
    hits = reuse.hit_tokens([CHAT], depth)
    seen = hit_ratio(simulate_sessions([CHAT], 8e4, seed=12), depth)
    parts = np.diff(hits.private[0] / hits.reusable_private[0], prepend=0.0)
    assert_close(parts, np.diff(seen.private, prepend=0.0), seen.private_error)


def test_second_use_admission():
    capacity = capacities([CHAT])
    second = CHAT.second_uses
    hits = reuse.hit_tokens([second], capacity)
    ratio = hits.private[0] * float(CHAT.turns.survival(1)) / float(CHAT.paused_moments[1])
    seen = hit_ratio(simulate_sessions([CHAT], 8e4, seed=13, second_use=True), capacity)
    assert_close(ratio, seen.private, seen.private_error)


def test_pinned_heads_leave_the_rest():
    """The sessions of pinned heads share what the heads leave, as if they had none."""
    pinned = float(HEADS.tokens) * 40
    capacity = pinned + capacities([CHAT])
    hits = reuse.hit_tokens([CHAT], capacity - pinned)
    seen = hit_ratio(simulate_sessions([replace(CHAT, prefix=None)], 8e4, seed=14), capacity - pinned)
    assert_close(hits.private[0] / hits.reusable_private[0], seen.private, seen.private_error)


def test_a_day_curve_is_mixed_over_its_rates():
    """Rates of 0.4 and 1.9 times the mean, hours each, against a characteristic time of minutes. The mean rate
    alone would be off by more than the bar."""
    factor, share = np.array([[0.4], [1.9]]), np.array([0.6, 0.4])
    capacity = capacities([CHAT])[1:]
    hits = reuse.hit_tokens([replace(CHAT, arrival_rate=0.05 * factor)], capacity)
    mixed = reuse.over_rates(hits.private[0], factor[:, 0], share) / float(CHAT.paused_moments[1])
    rates = RateCurve(14_400.0, share, factor[:, 0])
    seen = hit_ratio(simulate_sessions([CHAT], 12 * 14_400.0, seed=15, rates=rates), capacity, batches=12)
    assert_close(mixed, seen.private, seen.private_error)
    steady = reuse.hit_tokens([CHAT], capacity)
    assert np.max(np.abs(steady.private[0] / steady.reusable_private[0] - seen.private)) > BAR


def test_recovery_after_the_cache_was_emptied():
    """With room for everything, hits so long after a restart are those of pauses that are shorter: P(pause <= u) of the
    private tokens."""
    since = np.array([1.0, 9.0, 60.0, 600.0, 1e5])
    hits = reuse.hit_tokens([CHAT], 1e9, since=since)
    assert np.allclose(hits.private[0] / hits.reusable_private[0], TOOL_OR_HUMAN.cdf(since), atol=2e-3)
    heads = reuse.hit_tokens([replace(CHAT, prefix=HEADS)], 1e9, since=since)
    found = heads.prefix[0] / heads.reusable_prefix[0]
    assert np.all(np.diff(found) > 0) and found[-1] == pytest.approx(1.0, abs=0.01)


# sessions of four minutes of many turns, and short ones with pauses of every length: the mean rate, a plain mixture and
# the rate one window sees are each up to 0.1 off there
LONE = SessionStream(0.1, Lognormal(3_000.0, 1.0), Lognormal(600.0, 1.0), FixedTurns(3), Lomax(1.5, 30.0))


def found_share(stream, capacity, **changes):
    hits = reuse.hit_tokens([replace(stream, **changes)], capacity)
    return hits.private[0] / hits.reusable_private[0]


@pytest.mark.parametrize("period", [200.0, 1_600.0, 12_800.0])
def test_levels_of_any_length(period):
    """A fifth of the time sixteen times the rate of the rest, faster and slower than sessions of four minutes. A plain
    mixture over the two rates is up to 0.3 off where bursts are short, the mean rate where they are long."""
    share, factor = np.array([0.8, 0.2]), np.array([0.25, 4.0])
    capacity = capacities([CHAT])
    log = simulate_sessions([CHAT], 2e5, seed=16, rates=RateCurve(period, share, factor))
    seen = hit_ratio(log, capacity)
    found = found_share(CHAT, capacity, rates=level_rates(CHAT, period, share, factor, capacity))
    assert_close(found, seen.private, seen.private_error)


@pytest.mark.parametrize("bursts", [(0.2, 4.0), (0.05, 16 / 1.75)], ids=["a fifth", "a twentieth"])
@pytest.mark.parametrize("sessions", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("stream", [CHAT, BIG, LONE], ids=["chat", "big", "lone"])
def test_bursts_of_random_length(stream, sessions, bursts):
    """Sixteen times the rate of the rest, for times of a tenth to ten times the mean length of a session."""
    length = sessions * float(stream.turns.mean * stream.gap.mean)
    horizon = 1e5 / float(stream.arrival_rate * stream.turns.mean)
    capacity = capacities([stream])
    log = simulate_sessions([stream], horizon, seed=17, rates=RandomBursts(*bursts, length))
    seen = hit_ratio(log, capacity)
    found = found_share(stream, capacity, rates=burst_rates(stream, *bursts, length, capacity))
    assert_close(found, seen.private, seen.private_error)


def test_bursts_of_one_population_beside_a_steady_one_on_shared_heads():
    bursty, steady = (replace(CHAT, prefix=HEADS) for _ in range(2))
    bursts = (0.2, 4.0, 300.0)
    capacity = capacities([bursty])
    log = simulate_sessions([bursty, steady], 1e5, seed=18, rates=[RandomBursts(*bursts), None])
    hits = reuse.hit_tokens([replace(bursty, rates=burst_rates(bursty, *bursts, capacity)), steady], capacity)
    for i in range(2):
        seen = hit_ratio(log, capacity, stream=i)
        assert_close(hits.private[i] / hits.reusable_private[i], seen.private, seen.private_error)
        assert_close(hits.prefix[i] / hits.reusable_prefix[i], seen.prefix, seen.prefix_error)


def test_populations_share_their_bursts():
    """One object, one course of the rate: sessions of both streams start in the same bursts."""
    bursts = RandomBursts(0.1, 10.0, 100.0)
    once = SessionStream(1.0, Constant(1.0))
    events = sampled_events([once, once], 2e4, np.random.default_rng(1), bursts)
    counts = [np.histogram(events[0][events[1] == i], 200)[0] for i in range(2)]
    assert np.corrcoef(counts)[0, 1] > 0.9


DELETED = {
    "chat": CHAT,
    "few large sessions": BIG,
    "sessions of three turns": LONE,
    "shared heads": replace(CHAT, prefix=HEADS),
    "forty agents": SessionStream.of_agents(40, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap),
    "retention": replace(CHAT, retention=100.0),
}


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("name", DELETED)
def test_sessions_deleted_when_they_end(name, share):
    """The hole that a deleted session leaves is filled by the next, never by what was lost before: counting the others
    as they are at the return alone is up to 0.07 off."""
    stream = replace(DELETED[name], deleted=share)
    capacity = capacities([DELETED[name]])[1:5]
    horizon = 4e4 / float(stream.arrival_rate * stream.turns.mean)
    seen = found_ratio(simulate_policy([stream], capacity, horizon, seed=19))
    hits = reuse.hit_tokens([stream], capacity)
    assert_close(hits.private[0] / hits.reusable_private[0], seen.private, seen.private_error)
    if stream.prefix is not None:
        assert_close(hits.prefix[0] / hits.reusable_prefix[0], seen.prefix, seen.prefix_error)


def test_a_stack_has_no_holes():
    with pytest.raises(ValueError, match="holes"):
        simulate_sessions([replace(CHAT, deleted=0.5)], 1e3, seed=20)
