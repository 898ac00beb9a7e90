"""Hit tokens of growing sessions: published table, algebra, limits, and the session simulator as referee."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.formulas import reuse
from kvmodel.formulas.laws import (
    Constant,
    Exponential,
    FixedTurns,
    GeometricTurns,
    Lognormal,
    Lomax,
    Mixture,
    Sum,
)
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.simulation import session_cache

TOOL_OR_HUMAN = Mixture((0.9, 0.1), (Lognormal(9.0, 1.0), Lognormal(120.0, 1.0)))
FEW_LARGE = SessionStream(
    1 / 300,
    Constant(20_000.0),
    Sum((Lognormal(700.0, 1.0), Constant(220.0))),
    GeometricTurns(12.0),
    TOOL_OR_HUMAN,
)
MANY_SMALL = SessionStream(0.3, Lognormal(300.0, 0.8), Lognormal(40.0, 1.0), GeometricTurns(8.0), Exponential(30.0))
HEADS = SharedPrefix.zipf(8_000.0, 60, 0.9)
WITH_HEADS = [
    SessionStream(0.02, Constant(2_000.0), Lognormal(400.0, 1.0), GeometricTurns(8.0), TOOL_OR_HUMAN, prefix=HEADS),
    SessionStream(0.05, Constant(500.0), prefix=HEADS),
]


def ratio(streams, capacity, touch="reverse"):
    hits = reuse.hit_tokens(streams, capacity, touch)
    return hits.private / np.maximum(hits.reusable_private, 1e-9)


# --------------------------------------------------------------------------------------------- against others' numbers


def test_published_table_of_the_exact_simulation():
    """Project note on method, section 3: exact LRU simulation of 1.2 M turns in forward order, column
    "exact"."""
    stream = SessionStream(
        1 / 120, Lognormal(300.0, 0.8), Lognormal(40.0, 1.0), GeometricTurns(20.0), Lognormal(20.0, 1.5)
    )
    capacity = np.array([1_000.0, 4_000.0, 8_000.0, 16_000.0, 32_000.0])
    exact = [0.0307, 0.2927, 0.5968, 0.8804, 0.9895]
    # bar of the exact law in the note: 0.004 of simulation
    assert np.allclose(ratio([stream], capacity, "forward")[0], exact, atol=0.004)


def test_no_other_sessions_is_a_plain_comparison():
    """With no arrivals a pause changes nothing: E min(S, C) in reverse order, S P(S <= C) in forward
    order."""
    stream = SessionStream(0.0, Exponential(100.0), turns=FixedTurns(2), gap=Exponential(5.0))
    capacity = np.array([10.0, 100.0, 1_000.0])
    x = capacity / 100.0
    assert np.allclose(ratio([stream], capacity)[0], -np.expm1(-x), atol=1e-4)
    assert np.allclose(ratio([stream], capacity, "forward")[0], 1.0 - (1.0 + x) * np.exp(-x), atol=2e-3)


def test_one_size_is_a_poisson_law():
    """Single-turn neighbours of size 1, pause fixed at t: W(t) is Poisson(lambda t), and a context of size 1
    is held if W <= C - 1. Capacities lie between the jumps, where the blur of 2 % does not reach."""
    others = SessionStream(0.1, Constant(1.0))
    one = SessionStream(1e-9, Constant(1.0), turns=FixedTurns(2), gap=Constant(30.0))
    capacity = np.arange(1, 9) + 0.5
    poisson = np.exp(-3.0) * np.cumsum([3.0**n / np.prod(np.arange(1.0, n + 1)) for n in range(8)])
    assert np.allclose(ratio([one, others], capacity, "forward")[0], poisson, atol=2e-3)
    # reverse order finds E min(1, (C - W)+): everything if W <= C - 1, half a context if W is the next number
    halves = poisson + 0.5 * np.diff(np.concatenate([poisson, [np.nan]]))
    assert np.allclose(ratio([one, others], capacity)[0][:-1], halves[:-1], atol=1e-3)


def test_retention_alone_is_the_distribution_of_pauses():
    """Room for all, contexts dropped after tau: the hit ratio is P(pause <= tau)."""
    stream = SessionStream(
        0.01,
        Constant(100.0),
        Constant(10.0),
        GeometricTurns(5.0),
        Exponential(60.0),
        np.array([0.0, 30.0, 600.0]),
    )
    assert np.allclose(ratio([stream], 1e9)[0], -np.expm1(-np.array([0.0, 30.0, 600.0]) / 60.0), atol=1e-4)
    step = SessionStream(
        0.01, Constant(100.0), turns=FixedTurns(3), gap=Constant(60.0), retention=np.array([59.0, 60.0])
    )
    assert np.allclose(ratio([step], 1e9)[0], [0.0, 1.0], atol=1e-4)


def test_a_head_requested_alone_is_che():
    """Many equally popular heads without private tokens are the LRU of independent objects: 1 - exp(-q
    lambda T) with V (1 - exp(-q lambda T)) P = C, a hit ratio of C/(V P) when nothing is split (Che; 0.01
    for the split head)."""
    stream = SessionStream(1.0, Constant(0.0), prefix=SharedPrefix.uniform(10.0, 400))
    hits = reuse.hit_tokens([stream], np.array([400.0, 2_000.0, 3_600.0, 8_000.0]))
    assert np.allclose((hits.prefix / hits.reusable_prefix)[0], [0.1, 0.5, 0.9, 1.0], atol=0.01)


# ------------------------------------------------------------------------------------------- against the simulator


@pytest.mark.parametrize("touch", ["reverse", "forward"])
@pytest.mark.parametrize(
    ("streams", "horizon"),
    [([FEW_LARGE], 3e6), ([MANY_SMALL], 6e4), (WITH_HEADS, 5e5)],
    ids=["few large", "many small", "with heads"],
)
def test_within_0015_of_the_simulation(streams, horizon, touch):
    """Twelve capacities from less than a context to everything. The bar is 0.015; three standard errors of
    the simulation at this size are allowed beside 0.003, which a longer simulation confirms."""
    log = session_cache.simulate_sessions(streams, horizon, seed=11, touch=touch)
    context = streams[0].first.mean
    top = 3.0 * float(reuse.working_set_mean(streams, 400.0))
    capacity = np.geomspace(0.7 * context, max(top, 8.0 * context), 12)
    hits = reuse.hit_tokens(streams, capacity, touch)
    seen = session_cache.hit_ratio(log, capacity, stream=0)
    error = np.abs(hits.private[0] / hits.reusable_private[0] - seen.private)
    assert error.max() < 0.015
    assert np.all(error < 0.003 + 3.0 * seen.private_error)
    for i in range(len(streams) if streams is WITH_HEADS else 0):
        seen = session_cache.hit_ratio(log, capacity, stream=i)
        error = np.abs(hits.prefix[i] / hits.reusable_prefix[i] - seen.prefix)
        assert error.max() < 0.015
        assert np.all(error < 0.003 + 3.0 * seen.prefix_error)


@pytest.mark.parametrize(
    ("stream", "horizon"),
    [
        (SessionStream(1 / 200, Constant(1_000.0), turns=GeometricTurns(10.0), gap=Constant(60.0)), 8e5),
        (SessionStream(1 / 200, Constant(1_000.0), Constant(100.0), FixedTurns(10), Constant(60.0)), 8e5),
        (
            SessionStream(1 / 60, Lognormal(300.0, 1.0), Exponential(40.0), GeometricTurns(6.0), Lomax(1.5, 60.0)),
            4e5,
        ),
        (
            SessionStream(
                1 / 2000,
                Lognormal(1_000.0, 0.5),
                Exponential(300.0),
                GeometricTurns(5.0),
                Mixture((0.8, 0.2), (Constant(10.0), Exponential(500.0))),
            ),
            1.5e7,
        ),
        (
            SessionStream(
                1 / 100,
                Lognormal(1_000.0, 0.5),
                Exponential(300.0),
                GeometricTurns(5.0),
                Exponential(100.0),
                retention=150.0,
            ),
            6e5,
        ),
    ],
    ids=[
        "constant sizes and pauses",
        "constant growth",
        "heavy pauses",
        "one context at a time",
        "retention",
    ],
)
def test_hard_cases_against_the_simulation(stream, horizon):
    log = session_cache.simulate_sessions([stream], horizon, seed=3)
    capacity = np.geomspace(0.5, 30.0, 12) * float(stream.finished_moments[1])
    seen = session_cache.hit_ratio(log, capacity)
    error = np.abs(ratio([stream], capacity)[0] - seen.private)
    assert np.all(error < 0.004 + 3.0 * seen.private_error)


def test_survival_of_a_paused_session_against_the_simulation():
    """All pauses equal to t: what is left after t is the hit ratio of a workload that pauses for t only."""
    capacity, pauses = 30_000.0, np.array([10.0, 60.0, 300.0])
    one = SessionStream(1e-9, Constant(20_000.0), turns=FixedTurns(2), gap=Constant(1.0))
    left = reuse.paused_survival([one, FEW_LARGE], capacity, pauses)[0]
    for t, share in zip(pauses, left, strict=True):
        same = SessionStream(1e-9, Constant(20_000.0), turns=FixedTurns(2), gap=Constant(t))
        assert ratio([same, FEW_LARGE], capacity)[0] == pytest.approx(share, abs=1e-4)
    assert np.all(np.diff(left) < 0.0)


# --------------------------------------------------------------------------------------------------------------- laws

rates, sizes, spreads = st.floats(1e-3, 10.0), st.floats(10.0, 1e5), st.floats(0.1, 2.0)


@st.composite
def workloads(draw):
    size, pause = draw(sizes), draw(st.floats(1.0, 1e4))
    gap = draw(st.sampled_from([Constant(pause), Exponential(pause), Lognormal(pause, 1.5), Lomax(1.5, pause)]))
    first = draw(st.sampled_from([Constant(size), Lognormal(size, draw(spreads)), Exponential(size)]))
    turns = draw(st.sampled_from([FixedTurns(3), GeometricTurns(10.0)]))
    heads = draw(st.sampled_from([None, SharedPrefix.uniform(size, 20), SharedPrefix.zipf(2.0 * size, 100, 1.0)]))
    return SessionStream(draw(rates), first, Exponential(0.1 * size), turns, gap, prefix=heads)


def scaled(stream, size=1.0, time=1.0):
    """The same workload in other units of size and time."""

    def law(x, unit):
        if isinstance(x, Lognormal):
            return Lognormal(x.median * unit, x.sigma)
        if isinstance(x, Lomax):
            return Lomax(x.order, x.scale * unit)
        return type(x)(x.parameters[0] * unit)

    heads = stream.prefix and SharedPrefix(stream.prefix.tokens * size, stream.prefix.share, stream.prefix.count)
    return SessionStream(
        stream.arrival_rate / time,
        law(stream.first, size),
        law(stream.step, size),
        stream.turns,
        law(stream.gap, time),
        prefix=heads,
    )


def everything(hits):
    return np.concatenate(
        [
            hits.private / np.maximum(hits.reusable_private, 1e-9),
            hits.prefix / np.maximum(hits.reusable_prefix, 1e-9),
        ]
    )


@settings(max_examples=25)
@given(workloads(), st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_only_ratios_of_sizes_and_of_times_matter(stream, size, time):
    capacity = np.geomspace(0.1, 100.0, 5) * stream.finished_moments[1]
    one = everything(reuse.hit_tokens([stream], capacity))
    other = everything(reuse.hit_tokens([scaled(stream, size, time)], capacity * size))
    assert np.allclose(one, other, atol=1e-9)


@settings(max_examples=25)
@given(workloads(), st.sampled_from(["reverse", "forward"]))
def test_monotone_between_nothing_and_the_ceiling(stream, touch):
    """More capacity never finds less, up to the quadrature (0.001)."""
    capacity = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 30) * stream.finished_moments[1], [np.inf]])
    found = everything(reuse.hit_tokens([stream], capacity, touch))
    assert np.all(np.diff(found, axis=1) > -1e-3)
    assert np.all(found[:, 0] < 1e-6)
    assert found[0, -1] == pytest.approx(1.0, abs=1e-3)


@settings(max_examples=25)
@given(workloads())
def test_tail_first_finds_at_least_what_head_first_finds(stream):
    """min(S, (C - W)+) >= S 1(S + W <= C); a tenth more capacity covers the blur of the forward curve."""
    capacity = np.geomspace(0.1, 1e3, 12) * stream.finished_moments[1]
    forward, reverse = (
        everything(reuse.hit_tokens([stream], c, t)) for c, t in ((capacity, "forward"), (1.1 * capacity, "reverse"))
    )
    assert np.all(forward <= reverse + 0.005)


@settings(max_examples=25)
@given(workloads(), st.floats(0.5, 50.0))
def test_a_stream_split_in_two_changes_nothing(stream, contexts):
    capacity = contexts * stream.finished_moments[1]
    half = SessionStream(
        0.5 * stream.arrival_rate, stream.first, stream.step, stream.turns, stream.gap, prefix=stream.prefix
    )
    twin = SessionStream(
        0.5 * stream.arrival_rate, stream.first, stream.step, stream.turns, stream.gap, prefix=stream.prefix
    )
    whole, parts = (everything(reuse.hit_tokens(s, capacity)) for s in ([stream], [half, twin]))
    assert np.allclose(parts, np.repeat(whole, 2), atol=1e-3)  # nodes at the pauses double


def test_more_traffic_finds_less():
    stream = SessionStream(np.geomspace(1e-4, 1.0, 20), FEW_LARGE.first, FEW_LARGE.step, FEW_LARGE.turns, FEW_LARGE.gap)
    assert np.all(np.diff(ratio([stream], 2e5)[0]) < 1e-6)


def test_arrays_equal_scalars():
    """Capacities (3, 1) against rates and pauses (4,), laws with scalar parameters in between."""
    rate, pause = np.array([0.001, 0.01, 0.1, 1.0]), np.array([5.0, 20.0, 80.0, 320.0])
    capacity = np.array([3e4, 3e5, 3e6])[:, None]

    def streams(r, p):
        heads = SharedPrefix.zipf(8_000.0, 50, 0.9)
        agents = SessionStream(
            r, Constant(2e4), Lognormal(700.0, 1.3), GeometricTurns(9.0), Lognormal(p, 1.0), prefix=heads
        )
        return [
            agents,
            SessionStream(0.02, Exponential(900.0), prefix=heads),
            SessionStream(0.1, Constant(100.0)),
        ]

    many = reuse.hit_tokens(streams(rate, pause), capacity)
    assert many.private.shape == (3, 3, 4)
    for j in range(4):
        for i in range(3):
            one = reuse.hit_tokens(streams(rate[j], pause[j]), capacity[i, 0])
            for a, b in zip(many, one, strict=True):
                assert np.allclose(a[..., i, j], b, rtol=1e-9, atol=1e-9)


def test_capacities_of_tier_chains():
    capacity = np.array([100.0, 50.0, 400.0])
    assert list(reuse.exclusive_capacities(capacity)) == [100.0, 150.0, 550.0]
    assert list(reuse.inclusive_capacities(capacity)) == [100.0, 100.0, 400.0]


def test_streams_of_very_different_scale_stay_right():
    """A context a billion times smaller than the capacity, a stream without traffic, one without tokens."""
    small = SessionStream(1.0, Constant(1.0), turns=FixedTurns(2), gap=Exponential(10.0))
    large = SessionStream(1e-9, Exponential(1e9), Constant(1e6), GeometricTurns(10.0), Lognormal(10.0, 1.0))
    idle = SessionStream(0.0, Exponential(1e3), turns=FixedTurns(2), gap=Constant(10.0), prefix=HEADS)
    empty = SessionStream(1.0, Constant(0.0), turns=FixedTurns(2), gap=Constant(10.0))
    for touch in ("reverse", "forward"):
        hits = reuse.hit_tokens([small, large, idle, empty], np.array([1e9, 1e12, np.inf]), touch)
        assert np.all(np.isfinite(hits.private)) and np.all(np.isfinite(hits.prefix))
        assert np.allclose(hits.private[0], 1.0, atol=2e-3)
        assert np.allclose(hits.private[3], 0.0)
