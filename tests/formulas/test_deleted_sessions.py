"""Sessions whose context is freed when they end; errors against simulation: tests/simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import reuse
from kvmodel.formulas.eviction import ideal_hit_tokens
from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal, TabulatedTurns
from kvmodel.formulas.reuse import SessionStream, SharedPrefix

HEADS = SharedPrefix.uniform(500.0, 5)
CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), Exponential(30.0))
CAPACITY = np.geomspace(2e3, 2e5, 6)


def found(stream, capacity=CAPACITY, touch="reverse"):
    hits = reuse.hit_tokens([stream], capacity, touch)
    return hits.private[0] / hits.reusable_private[0]


def test_the_working_set_holds_only_what_waits():
    """All deleted: rate E min(G, t) E sum S = 0.05 x 30 (1 - exp(-t/30)) x (7 first + 49 step), E J(J-1)/2 = 7^2."""
    all_gone = [replace(CHAT, deleted=1.0)]
    t = np.array([5.0, 60.0, 1e6])
    waiting = 0.05 * 30.0 * -np.expm1(-t / 30.0) * (7.0 * float(CHAT.first.mean) + 49.0 * float(CHAT.step.mean))
    assert np.allclose(reuse.working_set_mean(all_gone, t), waiting)
    kept, half = (reuse.working_set_mean([replace(CHAT, deleted=d)], t) for d in (0.0, 0.5))
    assert np.allclose(half, 0.5 * (kept + waiting))


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from(["reverse", "forward"]), st.floats(0.1, 1e4))
def test_more_deleted_finds_no_less_and_never_beyond_the_best_possible(a, b, touch, contexts):
    capacity = np.array(contexts * 2_000.0)
    few, many = (replace(CHAT, deleted=share, prefix=HEADS) for share in sorted((a, b)))
    assert found(few, capacity, touch) <= found(many, capacity, touch) + 2e-3  # of the quadrature
    best = ideal_hit_tokens([many], capacity)
    assert found(many, capacity, touch) <= best.private[0] / best.reusable_private[0] + 5e-3


def test_sessions_of_one_turn_take_nothing_when_they_are_deleted():
    """Their last turn is their first, so that they never leave a context."""
    for turns in (GeometricTurns(1.0), TabulatedTurns([1.0])):
        once = SessionStream(1.0, Constant(5_000.0), turns=turns, deleted=1.0)
        hits = reuse.hit_tokens([CHAT, once], CAPACITY)
        assert np.allclose(hits.private[0] / hits.reusable_private[0], found(CHAT), atol=1e-3)  # nodes lie elsewhere


@pytest.mark.parametrize("stream", [CHAT, SessionStream.of_agents(20, CHAT.first, CHAT.step, CHAT.turns, CHAT.gap)])
def test_arrays_equal_scalars(stream):
    share, capacity = np.array([0.0, 0.3, 1.0]), np.array([1e4, 5e4, 2e4])
    many = reuse.hit_tokens([replace(stream, deleted=share, prefix=HEADS)], capacity)
    for k in range(3):
        one = reuse.hit_tokens([replace(stream, deleted=share[k], prefix=HEADS)], capacity[k])
        for part, whole in zip(one, many, strict=True):
            assert np.allclose(part, whole[..., k], rtol=1e-4)


def test_nothing_and_everything_fit_as_before():
    gone = replace(CHAT, deleted=1.0)
    ends = found(gone, np.array([0.0, 1e12]))
    assert ends[0] == pytest.approx(0.0, abs=1e-6) and ends[1] == pytest.approx(1.0, abs=1e-3)
    survival = reuse.paused_survival([gone], 3e4, np.geomspace(1.0, 1e4, 20))[0]
    assert np.all(np.diff(survival) <= 1e-3)
    assert np.all(survival >= reuse.paused_survival([CHAT], 3e4, np.geomspace(1.0, 1e4, 20))[0] - 1e-3)
