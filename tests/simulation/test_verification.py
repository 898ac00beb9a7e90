"""A closed form set against its simulation."""

from __future__ import annotations

import numpy as np

from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.simulation.verification import verification

HEADS = SharedPrefix.zipf(1_000.0, 10, 0.9)
STREAMS = [
    SessionStream(0.1, Lognormal(2_000.0, 0.8), Constant(300.0), GeometricTurns(6.0), Exponential(40.0), prefix=HEADS),
    SessionStream(0.1, Constant(500.0)),
]
CAPACITY = np.array([5e3, 2e4, 8e4])


def shares(hits):
    return hits.private / np.maximum(hits.reusable_private, 1e-9), hits.heads / np.maximum(hits.reusable_heads, 1e-9)


def test_differences_come_with_their_standard_errors():
    found = verification(STREAMS, CAPACITY, *shares(hit_tokens(STREAMS, CAPACITY)), turns=40_000)
    assert found.turns > 20_000 and found.private.shape == found.private_error.shape == (2, 3)
    assert np.isnan(found.private[1]).all() and np.isnan(found.simulated_prefix[0, 1]).all()  # one turn, no head
    assert np.all(np.abs(found.private - found.simulated_private)[0] <= 0.015 + 3 * found.private_error[0])
    assert found.largest_difference == np.nanmax(
        np.abs([found.private[0] - found.simulated_private[0], found.prefix[0, 0] - found.simulated_prefix[0, 0]])
    )


def test_a_wrong_closed_form_is_seen():
    wrong = hit_tokens(STREAMS, 2.0 * CAPACITY)
    assert verification(STREAMS, CAPACITY, *shares(wrong), turns=20_000).largest_difference > 0.05
