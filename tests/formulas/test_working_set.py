"""Moments of the working set: algebra and the simulator's draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal
from kvmodel.formulas.working_set import (
    SessionStream,
    SharedPrefix,
    characteristic_time,
    working_set_mean,
    working_set_variance,
)


@pytest.mark.parametrize("turns", [GeometricTurns(5.0), FixedTurns(4)], ids=["geometric", "fixed"])
def test_moments_of_contexts_against_draws(turns):
    """Sums over the contexts of 200,000 drawn sessions, five standard errors."""
    stream = SessionStream(1.0, Lognormal(10.0, 0.5), Exponential(3.0), turns)
    rng = np.random.default_rng(2)
    count = turns.sample(rng, 200_000)
    size = stream.first.sample(rng, len(count))
    paused = np.zeros((3, len(count)))
    finished = np.zeros((3, len(count)))
    for k in range(1, count.max() + 1):
        for power in range(3):
            paused[power] += (count > k) * size**power
            finished[power] += (count == k) * size**power
        size = size + stream.step.sample(rng, len(count))
    for drawn, stated in ((paused, stream.paused_moments), (finished, stream.finished_moments)):
        error = drawn.std(axis=1) / np.sqrt(drawn.shape[1])
        assert np.all(np.abs(drawn.mean(axis=1) - np.array(stated)) <= 5.0 * error + 1e-9)


def test_single_turns_are_a_plain_compound_poisson():
    stream = SessionStream(2.0, Exponential(5.0))
    assert working_set_mean([stream], 3.0) == pytest.approx(2.0 * 3.0 * 5.0)
    assert working_set_variance([stream], 3.0) == pytest.approx(2.0 * 3.0 * 50.0)


def test_heads_alone_are_independent_coins():
    """V heads, each touched with probability p = 1 - exp(-L): mean V P p, variance V P^2 p (1-p)."""
    stream = SessionStream(0.5, Constant(0.0), prefix=SharedPrefix.uniform(7.0, 10))
    p = -np.expm1(-0.5 * 4.0 / 10)
    assert working_set_mean([stream], 4.0) == pytest.approx(70.0 * p)
    assert working_set_variance([stream], 4.0) == pytest.approx(10 * 49.0 * p * (1 - p))


def test_streams_on_one_head_share_it():
    heads = SharedPrefix.uniform(7.0, 10)
    one = SessionStream(0.5, Constant(0.0), prefix=heads)
    other = SessionStream(0.5, Constant(0.0), prefix=heads)
    apart = SessionStream(0.5, Constant(0.0), prefix=SharedPrefix.uniform(7.0, 10))
    double = SessionStream(1.0, Constant(0.0), prefix=heads)
    assert working_set_mean([one, other], 4.0) == pytest.approx(working_set_mean([double], 4.0))
    assert working_set_mean([one, apart], 4.0) == pytest.approx(2.0 * working_set_mean([one], 4.0))


@given(st.integers(1, 5000), st.floats(0.0, 2.0))
def test_zipf_groups_keep_heads_and_probability(variants, exponent):
    heads = SharedPrefix.zipf(1.0, variants, exponent)
    assert heads.count.sum() == variants
    assert (heads.share * heads.count).sum() == pytest.approx(1.0)
    true = np.arange(1.0, variants + 1.0) ** -exponent
    assert heads.share[0] == pytest.approx(true[0] / true.sum(), rel=0.01)


def test_zipf_takes_arrays():
    many = SharedPrefix.zipf(1.0, np.array([[5], [500]]), np.array([0.5, 1.0, 1.5]))
    one = SharedPrefix.zipf(1.0, 500, 1.0)
    assert many.share.shape[1:] == (2, 3)
    assert np.allclose(many.share[:, 1, 1], one.share) and np.allclose(many.count[:, 1, 1], one.count)


@given(st.floats(1.0, 1e9), st.floats(1e-4, 10.0))
def test_characteristic_time_inverts_the_mean(capacity, rate):
    heads = SharedPrefix.zipf(50.0, 30, 0.8)
    streams = [
        SessionStream(
            rate, Lognormal(100.0, 1.0), Constant(10.0), GeometricTurns(5.0), Exponential(60.0), prefix=heads
        ),
        SessionStream(1.0, Constant(20.0)),
    ]
    time = characteristic_time(streams, capacity)
    assert working_set_mean(streams, time) == pytest.approx(capacity, rel=1e-6)


def test_retention_bounds_the_working_set():
    """A finished context is forgotten after tau: never more than rate * tau * size."""
    stream = SessionStream(0.1, Constant(100.0), retention=50.0)
    assert working_set_mean([stream], np.array([10.0, 50.0, 1e9])) == pytest.approx([100.0, 500.0, 500.0])
    assert characteristic_time([stream], 1e6) <= 50.0


@pytest.mark.parametrize("variants", [1, 2, 3, 4, 5, 8, 60, 5_000])
@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.2])
def test_groups_of_variants_add_up(variants, exponent):
    """Gauss groups against all variants: whole counts, shares that sum to one, and E of a smooth function of
    popularity (variants touched among 3 n draws) within 3 %."""
    grouped = SharedPrefix.zipf(10.0, variants, exponent)
    every = SharedPrefix.explicit(10.0, np.arange(1.0, variants + 1.0) ** -exponent)
    assert grouped.count.sum() == variants and np.all(grouped.count == np.rint(grouped.count))
    assert (grouped.share * grouped.count).sum() == pytest.approx(1.0)
    touched = [(p.count * -np.expm1(-3.0 * variants * p.share)).sum() for p in (grouped, every)]
    assert touched[0] == pytest.approx(touched[1], rel=0.03)
