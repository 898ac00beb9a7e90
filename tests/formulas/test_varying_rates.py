"""Rates that change, in the limits and against each other; errors against simulation: tests/simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import reuse
from kvmodel.formulas.eviction import ideal_hit_tokens
from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.formulas.varying_rates import burst_rates, hit_tokens_at_one_window, level_rates

HEADS = SharedPrefix.uniform(500.0, 5)
CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), Exponential(30.0))
CAPACITY = np.geomspace(2e3, 2e5, 6)
SHARE, FACTOR = np.array([0.75, 0.25]), np.array([0.5, 2.5])


def burst(stream, length, capacity=CAPACITY):
    return burst_rates(stream, 0.25, 2.5, length, capacity)


def levels(stream, length, capacity=CAPACITY):
    return level_rates(stream, 4.0 * length, SHARE, FACTOR, capacity)


def found(stream, rates, capacity=CAPACITY):
    hits = reuse.hit_tokens([replace(stream, rates=rates)], capacity)
    return hits.private[0] / hits.reusable_private[0]


@pytest.mark.parametrize("rates", [burst, levels])
def test_long_changes_are_a_mixture_and_short_ones_the_mean(rates):
    """Beside sessions of four minutes and pauses of half a minute, months and hundredths of a second. Six nodes in each
    level leave the 0.005."""
    steady = reuse.hit_tokens([replace(CHAT, arrival_rate=0.05 * FACTOR[:, None])], CAPACITY).private[0]
    mixture = reuse.over_rates(steady, FACTOR, SHARE) / float(CHAT.paused_moments[1])
    assert np.allclose(found(CHAT, rates(CHAT, 1e8)), mixture, atol=0.005)
    mean = reuse.hit_tokens([CHAT], CAPACITY)
    assert np.allclose(found(CHAT, rates(CHAT, 0.01)), mean.private[0] / mean.reusable_private[0], atol=0.005)
    assert np.max(np.abs(mixture - mean.private[0] / mean.reusable_private[0])) > 0.03


@pytest.mark.parametrize("rates", [burst, levels])
@given(length=st.floats(0.1, 1e6), contexts=st.floats(0.1, 1e4), t=st.floats(1e-3, 1e9))
def test_means_over_time_are_one(rates, length, contexts, t):
    """The stated rate is the mean; the levels of a Fourier series of 200 terms overshoot by less than a percent."""
    seen = rates(CHAT, length, np.array(contexts * 2_000.0))
    assert seen.time.sum() == pytest.approx(1.0)
    for part, tolerance in ((seen.seen(t), 0.02), (seen.returning(t), 1e-6), (seen.using(t), 1e-6)):
        assert (seen.time * part).sum() == pytest.approx(1.0, abs=tolerance)
        assert np.all(part >= 0.0) and np.all(part <= 2.5 * 1.5)


def test_what_is_seen_varies_less_the_longer_the_window_and_the_shorter_the_bursts():
    seen = burst(CHAT, np.array([10.0, 100.0, 1e3, 1e4]), np.array(1e4))
    variance = [(seen.time * (seen.seen(t) - 1.0) ** 2).sum(axis=0) for t in (1.0, 30.0, 1e3, 1e5)]
    assert np.all(np.diff(variance, axis=0) < 0.0) and np.all(np.diff(variance, axis=1) > 0.0)
    assert np.max(variance) < 0.25 * 0.75 * 2.0**2  # of the two levels themselves


def test_the_variance_seen_is_that_of_the_mean_level_over_the_window():
    """Sessions of one turn: what a window of t sees is the mean level over t. Its variance is the mean of
    the covariance var exp(-u / tau) over two times in the window, var 2 (x - 1 + exp(-x)) / x^2 with x = t / tau."""
    once = SessionStream(1.0, Constant(100.0))
    seen = burst_rates(once, 0.25, 2.5, 40.0, np.array(1e3))
    for t in (1.0, 30.0, 1_000.0):
        x = t / (40.0 * 0.75)
        variance = (seen.time * (seen.seen(t) - 1.0) ** 2).sum()
        assert variance == pytest.approx(
            0.75 * 2.0 * (x - 1.0 + np.exp(-x)) / x**2, rel=0.05
        )  # the spectrum swings between nodes


@pytest.mark.parametrize("rates", [burst, levels])
def test_arrays_equal_scalars(rates):
    stream = replace(CHAT, arrival_rate=np.array([0.02, 0.1]), prefix=HEADS)
    length, capacity = np.array([30.0, 3e3]), np.array([1e4, 5e4])
    both = reuse.hit_tokens([replace(stream, rates=rates(stream, length, capacity))], capacity)
    for k in range(2):
        one = replace(CHAT, arrival_rate=stream.arrival_rate[k], prefix=HEADS)
        alone = reuse.hit_tokens([replace(one, rates=rates(one, length[k], capacity[k]))], capacity[k])
        for part, whole in zip(alone, both, strict=True):
            assert np.allclose(part, whole[..., k], rtol=1e-5)


def test_levels_may_be_arrays():
    share, factor = np.array([[0.6, 0.5], [0.4, 0.5]]), np.array([[0.5, 1.0], [1.75, 1.0]])
    capacity = np.array([1e4, 5e4])
    both = found(CHAT, level_rates(CHAT, 600.0, share, factor, capacity), capacity)
    for k in range(2):
        rates = level_rates(CHAT, 600.0, share[:, k], factor[:, k], capacity[k])
        assert both[k] == pytest.approx(found(CHAT, rates, capacity[k]), rel=1e-5)
    steady = reuse.hit_tokens([CHAT], capacity[1])
    assert both[1] == pytest.approx(steady.private[0] / steady.reusable_private[0], rel=1e-5)


def test_bursts_of_factor_one_and_empty_contexts_are_steady():
    steady = reuse.hit_tokens([CHAT], CAPACITY)
    rates = burst_rates(CHAT, 0.3, 1.0, 100.0, CAPACITY)
    assert np.allclose(found(CHAT, rates), steady.private[0] / steady.reusable_private[0], rtol=1e-5)
    alone = SessionStream(0.1, Constant(0.0), prefix=HEADS)
    hits = reuse.hit_tokens([replace(alone, rates=burst(alone, 100.0))], CAPACITY)
    assert np.all(np.isfinite(hits.prefix)) and np.all(hits.private == 0.0)


@pytest.mark.parametrize("rates", [burst, levels])
def test_other_rules_see_one_window_and_the_best_possible_stays_above(rates):
    stream = replace(CHAT, prefix=HEADS)
    busy = [replace(stream, rates=rates(stream, 2_000.0))]
    lru, best = reuse.hit_tokens(busy, CAPACITY), hit_tokens_at_one_window(ideal_hit_tokens, busy, CAPACITY)
    assert np.all(lru.private + lru.prefix <= best.private + best.prefix + 0.01 * best.reusable_private)
    near = hit_tokens_at_one_window(reuse.hit_tokens, busy, CAPACITY)
    assert np.allclose(near.private / near.reusable_private, lru.private / lru.reusable_private, atol=0.03)


@given(
    st.floats(-5.0, -0.01),
    st.floats(0.0, 1.0),
    st.floats(-4.0, 8.0),
    st.floats(0.0, 9.0),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([None, HEADS]),
)
def test_extremes_stay_finite_and_more_capacity_finds_no_less(share, of_most, length, room, deleted, prefix):
    """Bursts of a 100,000th of the time to nearly all of it, nothing in between, empty and endless caches."""
    share, capacity = 10.0**share, np.array([0.0, 10.0**room, 1e15])
    stream = replace(CHAT, deleted=deleted, prefix=prefix)
    rates = burst_rates(stream, share, of_most / share, 10.0**length, capacity)
    hits = reuse.hit_tokens([replace(stream, rates=rates)], capacity)
    assert all(np.all(np.isfinite(part)) for part in hits)
    assert np.all(np.diff(hits.private[0] / hits.reusable_private[0]) >= -2e-3)  # of the quadrature
