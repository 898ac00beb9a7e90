"""The best possible and the value-aware windows: algebra, and the order in which rules stand for every workload."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from kvmodel.formulas.eviction import (
    ideal_hit_tokens,
    value_aware_hit_tokens,
    value_windows,
    windowed,
)
from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal, Mixture
from kvmodel.formulas.residence import fifo_hit_tokens, random_hit_tokens
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.formulas.working_set import characteristic_time, working_set_mean

HEADS = SharedPrefix.zipf(4_000.0, 40, 0.9)


def ratio(hits):
    return (hits.private + hits.prefix) / (hits.reusable_private + hits.reusable_prefix)


def test_constant_pauses_are_kept_in_proportion():
    """lambda S (K-1) G tokens keep everything: 0.1 /s x 100 tokens x 2 pauses of 30 s = 600; half of it keeps half."""
    stream = SessionStream(0.1, Constant(100.0), turns=FixedTurns(3), gap=Constant(30.0))
    found = ratio(ideal_hit_tokens([stream], np.array([0.0, 150.0, 300.0, 600.0, 1e9])))[0]
    assert np.allclose(found, [0.0, 0.25, 0.5, 1.0, 1.0], atol=1e-6)


def test_exponential_pauses_up_to_theta():
    """1 - exp(-x) found with lambda S theta-terms: E[G; G <= x m] = m (1 - exp(-x) (1 + x))."""
    stream = SessionStream(0.1, Constant(100.0), turns=FixedTurns(2), gap=Exponential(30.0))
    x = np.array([0.3, 1.0, 3.0])
    capacity = 0.1 * 100.0 * 30.0 * (1.0 - np.exp(-x) * (1.0 + x))
    assert np.allclose(ratio(ideal_hit_tokens([stream], capacity))[0], -np.expm1(-x), atol=3e-3)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(1.0, 300.0), st.floats(1.5, 20.0), st.booleans())
def test_lru_stays_below_it_and_it_below_the_ceiling(rate, median, turns, head):
    gap = Mixture((0.9, 0.1), (Lognormal(median, 1.0), Lognormal(20 * median, 1.2)))
    stream = SessionStream(
        rate, Lognormal(2_000.0, 0.8), Constant(400.0), GeometricTurns(turns), gap, prefix=HEADS if head else None
    )
    capacity = np.geomspace(3e3, 3e7, 9)
    best, lru = ratio(ideal_hit_tokens([stream], capacity))[0], ratio(hit_tokens([stream], capacity))[0]
    assert np.all(lru <= best + 0.004) and np.all(best <= 1.0 + 1e-9)
    assert np.all(np.diff(best) >= -1e-9)


def test_arrays_equal_scalars_and_restarts_cut_pauses():
    stream = SessionStream(np.array([0.1, 0.3]), Constant(100.0), turns=FixedTurns(2), gap=Exponential(30.0))
    both = ideal_hit_tokens([stream], 200.0)
    for k, rate in enumerate((0.1, 0.3)):
        alone = SessionStream(rate, Constant(100.0), turns=FixedTurns(2), gap=Exponential(30.0))
        one = ideal_hit_tokens([alone], 200.0)
        assert both.private[0, k] == pytest.approx(float(one.private[0]))
    cold = ideal_hit_tokens(
        [SessionStream(0.1, Constant(100.0), turns=FixedTurns(2), gap=Exponential(30.0))], 1e9, since=30.0
    )
    assert float(cold.private[0]) == pytest.approx(100.0 * -np.expm1(-1.0), rel=1e-3)


QUICK = SessionStream(0.1, Lognormal(2_000.0, 0.8), Constant(400.0), GeometricTurns(8.0), Lognormal(10.0, 0.7))
SLOW = replace(QUICK, arrival_rate=0.05, gap=Lognormal(400.0, 1.0))


def in_all(streams, hits):
    """Share of all reusable tokens found, streams weighed by their rates."""
    found, whole = hits.private + hits.prefix, hits.reusable_private + hits.reusable_prefix
    return sum(s.arrival_rate * f for s, f in zip(streams, found, strict=True)) / sum(
        s.arrival_rate * w for s, w in zip(streams, whole, strict=True)
    )


def test_windows_end_where_the_hazards_meet():
    """Two turns, exponential pauses of means m: of what is held a time x after its use, finished contexts included, a
    share exp(-x/m)/(1 + exp(-x/m)) is yet to return, so its index is that over m. Both populations are kept to one
    index, at which lambda S (m (1 - exp(-x/m)) + x) fill the cache. Nodes of the windows lie 12 % apart."""
    means, capacity = (20.0, 60.0), 900.0
    streams = [SessionStream(0.1, Constant(100.0), turns=FixedTurns(2), gap=Exponential(m)) for m in means]

    def window(index, m):  # exp(-y)/(1 + exp(-y)) = index m
        return m * max(np.log(1.0 / (index * m) - 1.0), 0.0) if index * m < 0.5 else 0.0

    def held(index):
        return sum(10.0 * (m * -np.expm1(-window(index, m) / m) + window(index, m)) for m in means)

    index = brentq(lambda i: held(i) - capacity, 1e-9, 0.0249)
    expected = [window(index, m) for m in means]
    assert np.allclose(value_windows(streams, capacity).context, expected, rtol=0.12)
    assert min(expected) > 1.0


def test_what_never_returns_is_not_kept_and_what_is_worth_more_is_kept_longer():
    once = SessionStream(1.0, Constant(5_000.0))
    assert np.all(value_windows([QUICK, once], np.array([3e4, 1e5])).context[1] == 0.0)
    plain, dear = (value_windows([QUICK, replace(SLOW, value=v)], 1.5e5).context for v in (1.0, 4.0))
    assert dear[1] > plain[1] and dear[0] < plain[0]
    heads = value_windows([replace(QUICK, prefix=HEADS), replace(SLOW, prefix=HEADS)], np.geomspace(1e4, 1e7, 9))
    assert np.all(heads.head >= heads.context) and np.all(heads.head[0] == heads.head[1])


@pytest.mark.parametrize("unit", [1e-3, 3_600.0])
def test_one_population_is_lru_in_any_unit_of_time(unit):
    capacity = np.geomspace(1e4, 1e6, 7)
    lru = hit_tokens([SLOW], capacity)
    assert np.allclose(value_aware_hit_tokens([SLOW], capacity).private, lru.private, rtol=1e-4)
    seconds, others = replace(SLOW, prefix=HEADS), replace(SLOW, window=unit, prefix=HEADS, head_window=unit)
    here, there = hit_tokens([seconds], capacity), hit_tokens([others], capacity)
    assert np.allclose(there.private, here.private, rtol=1e-4) and np.allclose(there.prefix, here.prefix, rtol=1e-4)
    time = characteristic_time([others], capacity)
    assert np.allclose(working_set_mean([others], time), capacity, rtol=1e-5)
    assert np.allclose(time * unit, characteristic_time([seconds], capacity), rtol=1e-5)


def test_value_aware_finds_more_than_lru_where_populations_differ():
    """Below a few contexts (2e4 tokens) windows that hold on average are no longer best."""
    capacity = np.geomspace(2e4, 1e6, 6)
    for streams in ([QUICK, SLOW], [replace(QUICK, prefix=HEADS), replace(SLOW, prefix=HEADS)]):
        aware, lru = (in_all(streams, rule(streams, capacity)) for rule in (value_aware_hit_tokens, hit_tokens))
        assert np.all(aware >= lru - 0.004) and np.max(aware - lru) > 0.05


def test_windowed_streams_keep_the_ratio_of_their_windows():
    streams = windowed([QUICK, SLOW], value_windows([QUICK, SLOW], 1.5e5))
    windows = value_windows([QUICK, SLOW], 1.5e5).context
    assert float(streams[0].window / streams[1].window) == pytest.approx(float(windows[0] / windows[1]))


@settings(max_examples=12, deadline=None)
@given(st.floats(0.05, 1.0), st.floats(2.0, 300.0), st.floats(1.5, 20.0), st.booleans())
def test_every_rule_stays_below_the_best_and_it_below_the_ceiling(rate, median, turns, head):
    stream = SessionStream(
        rate,
        Lognormal(2_000.0, 0.8),
        Constant(400.0),
        GeometricTurns(turns),
        Lognormal(median, 1.0),
        prefix=HEADS if head else None,
    )
    streams, capacity = [stream, replace(SLOW, prefix=stream.prefix)], np.geomspace(3e4, 3e7, 7)
    best = in_all(streams, ideal_hit_tokens(streams, capacity))
    assert np.all(best <= 1.0 + 1e-9)
    for rule in (hit_tokens, fifo_hit_tokens, random_hit_tokens, value_aware_hit_tokens):
        assert np.all(in_all(streams, rule(streams, capacity)) <= best + 0.005)


def test_windows_of_arrays_equal_those_of_scalars():
    rate, value, capacity = np.array([0.05, 0.2]), np.array([1.0, 3.0]), np.array([1e5, 4e5])
    both = value_aware_hit_tokens([QUICK, replace(SLOW, arrival_rate=rate, value=value, prefix=HEADS)], capacity)
    for k in range(2):
        streams = [QUICK, replace(SLOW, arrival_rate=rate[k], value=value[k], prefix=HEADS)]
        one = value_aware_hit_tokens(streams, capacity[k])
        assert np.allclose(both.private[:, k], one.private, rtol=2e-3, atol=1.0)
        assert np.allclose(both.prefix[:, k], one.prefix, rtol=2e-3, atol=1.0)
