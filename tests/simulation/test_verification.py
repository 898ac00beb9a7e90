"""Sessions, tiers and GPUs together, against what closed forms say of the parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal, Sum
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.simulation.serving import Path, Prefill
from kvmodel.simulation.tier_chain import ChainTier
from kvmodel.simulation.verification import Plant, simulated

HEADS = SharedPrefix.zipf(1_000.0, 10, 0.9)
STREAMS = [
    SessionStream(0.1, Lognormal(2_000.0, 0.8), Constant(300.0), GeometricTurns(6.0), Exponential(40.0), prefix=HEADS),
    SessionStream(0.1, Constant(500.0)),
]
OUTPUTS = [Constant(100.0), Constant(50.0)]
SIZES = np.array([2e4, 8e4])
PLANT = Plant(
    streams=STREAMS,
    outputs=OUTPUTS,
    extra=8.0,
    granularity=1.0,
    rates=[None, None],
    tiers=[ChainTier(size) for size in SIZES],
    paths=[Path(), Path(0.01, 1e-5, link_per_token=1e-5)],
    prefill=Prefill(0.01, 1e-4, 1e-9),
)
RUN = partial(simulated, turns=40_000)


def test_shares_found_are_those_of_the_closed_form():
    """Contexts of first + output + padding, step + output; the bar of the project plus three standard errors."""
    room = [
        replace(s, first=Sum((s.first, o, Constant(8.0))), step=Sum((s.step, o)))
        for s, o in zip(STREAMS, OUTPUTS, strict=True)
    ]
    hits, seen = hit_tokens(room, SIZES), RUN(PLANT)
    assert seen.turns > 25_000
    for closed, (mean, error) in (
        (hits.private[0] / hits.reusable_private[0], seen.private[0]),
        (hits.heads[0, 0] / hits.reusable_heads[0, 0], seen.heads[0][0]),
    ):
        assert np.all(np.abs(closed - mean) <= 0.015 + 3 * error) and np.all(error < 0.015)
    assert np.isnan(seen.private[1][0]).all() and np.isnan(seen.heads[0][1][0]).all()  # one turn, no head


def test_nothing_is_found_and_all_is_computed_without_tiers():
    """Work per second: rate x E prefill of the whole prompts, from the laws' moments."""
    seen = RUN(replace(PLANT, tiers=[], paths=[]))
    assert seen.resident[0] == seen.timely[0] == 0.0
    first, turns = STREAMS[0].first, 6.0
    step = 400.0
    # before turn k: first + (k - 1) step; E (K - 1) = 5 and E sum_{k<=K} (k - 1)^n of the geometric law of mean 6
    going = 1.0 - 1.0 / turns
    k = np.arange(2_000.0)
    ever = going**k
    mean = (ever * (first.mean + step * k + 1_000.0)).sum()
    square = (ever * (first.variance + (first.mean + step * k + 1_000.0) ** 2)).sum()
    work = 0.1 * (turns * 0.01 + 1e-4 * mean + 1e-9 * square) + 0.1 * (0.01 + 1e-4 * 500.0 + 1e-9 * 500.0**2)
    assert seen.utilisation[0] == pytest.approx(float(work), abs=4 * seen.utilisation[1])
    assert seen.utilisation[1] < 0.05 * work


def test_reuse_saves_work_and_time_and_is_timely_up_to_the_limit():
    none, seen = RUN(replace(PLANT, tiers=[], paths=[])), RUN(PLANT)
    assert seen.utilisation[0] < none.utilisation[0] and seen.first_token[0] < none.first_token[0]
    assert 0.0 < seen.timely[0] <= seen.resident[0] < 1.0
    hurried = RUN(replace(PLANT, limit=0.02))  # 1,000 tokens; the time itself stays as it is
    assert hurried.timely[0] < seen.timely[0] and hurried.resident == seen.resident
    assert hurried.first_token == seen.first_token and hurried.in_time < seen.in_time == (1.0, 0.0)


def test_the_same_seed_gives_the_same_means():
    assert RUN(PLANT, seed=3).first_token == RUN(PLANT, seed=3).first_token != RUN(PLANT, seed=4).first_token


def test_standard_errors_cover_the_spread_of_independent_runs():
    """Eight seeds: the stated error of each mean within a factor of two of their spread."""
    runs = [RUN(PLANT, turns=15_000, seed=seed) for seed in range(8)]
    for name in ("resident", "first_token", "utilisation"):
        spread = np.std([getattr(run, name)[0] for run in runs], ddof=1)
        assert 0.5 < np.mean([getattr(run, name)[1] for run in runs]) / spread < 2.0
