"""The best possible: algebra for one kind of pause, and an upper bound of LRU for every workload."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.formulas.eviction import ideal_hit_tokens
from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal, Mixture
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens

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
