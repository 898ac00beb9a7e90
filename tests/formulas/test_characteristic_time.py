"""Characteristic-time hit ratios against the reference vectors (theory_vectors.json, topic che_cache).

Those marked exact come from independent fixed points, with simulations beside them; tolerances are the
vectors' own.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvmodel.formulas import characteristic_time as che
from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Mixture
from kvmodel.formulas.working_set import SessionStream, characteristic_time


@pytest.fixture(scope="module")
def vectors(reference_data):
    rows = json.loads(reference_data("theory_vectors.json").read_text())
    return {row["id"]: row for row in rows}


def popularity(row):
    return che.zipf_popularity(row["inputs"]["objects"], row["inputs"]["zipf_alpha"])


def near(row, key, value):
    assert value == pytest.approx(row["expected"][key], rel=row["tolerance"]["rel"])


def test_lru_of_equal_objects(vectors):
    rows = [row for name, row in vectors.items() if name.startswith("lru_che_zipf")]
    assert len(rows) >= 8
    for row in rows:
        answer = che.lru(popularity(row), row["inputs"]["cache_objects"])
        near(row, "characteristic_time_s", answer.time)
        near(row, "hit_ratio", answer.hit_ratio)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("lru_che_sizes_1_4_16_C7000", np.resize([1.0, 4.0, 16.0], 10000)),
        ("lru_che_sizes_1_4_16_C21000", np.resize([1.0, 4.0, 16.0], 10000)),
        ("lru_che_sizes_correlated", np.where(np.arange(10000) < 1000, 10.0, 1.0)),
    ],
)
def test_lru_of_unequal_objects(vectors, name, sizes):
    row = vectors[name]
    answer = che.lru(popularity(row), row["inputs"]["cache_blocks"], sizes)
    near(row, "characteristic_time_s", answer.time)
    near(row, "object_hit_ratio", answer.hit_ratio)
    near(row, "byte_hit_ratio", answer.byte_hit_ratio)


def test_fifo(vectors):
    row = vectors["fifo_random_che_zipf0.8_C1000"]
    answer = che.fifo(popularity(row), 1000)
    near(row, "characteristic_time_s", answer.time)
    near(row, "hit_ratio", answer.hit_ratio)


def test_bursty_renewal_requests(vectors):
    row = vectors["lru_che_renewal_h2_C400"]

    def gap(rate):
        return Mixture((0.8, 0.2), (Exponential(1.0 / (4.0 * rate)), Exponential(1.0 / (0.25 * rate))))

    answer = che.lru_renewal(popularity(row), 400, gap)
    near(row, "characteristic_time_s", answer.time)
    near(row, "hit_ratio", answer.hit_ratio)


def test_pinned_objects(vectors):
    row = vectors["pinning_top300_plus_lru700"]
    answer = che.pinned_lru(popularity(row), 1000, np.arange(10000) < 300)
    near(row, "characteristic_time_s", answer.time)
    near(row, "hit_ratio", answer.hit_ratio)


def test_marginal_hit_ratio(vectors):
    row = vectors["che_marginal_hit_C1000"]
    near(row, "dhit_dcapacity_per_object", che.lru_marginal_hit_ratio(popularity(row), 1000))


def test_exclusive_chain_is_one_stack(vectors):
    row = vectors["two_tier_exclusive_demotion"]
    first, both = (che.lru(popularity(row), c).hit_ratio for c in (200, 1200))
    near(row, "tier1_hit_ratio", first)
    near(row, "tier2_hit_ratio_of_all_requests", both - first)
    near(row, "demotions_per_request", 1.0 - first)


@pytest.mark.parametrize("capacity", [500, 800, 950])
def test_random_replacement_under_a_loop(vectors, capacity):
    row = vectors[f"cyclic_scan_N1000_C{capacity}"]
    near(row, "hit_ratio_random_replacement", che.loop_hit_ratio_random(1000, capacity))


@pytest.mark.parametrize("capacity", [1500, 6000])
def test_growing_sessions_of_the_mean_theory(vectors, capacity):
    """The mean-field session equation: T from the mean working set, hit = P(gap <= T)."""
    row = vectors[f"session_lru_growing_l2_C{capacity}"]
    gap = Mixture((0.7, 0.3), (Exponential(30.0), Exponential(600.0)))
    stream = SessionStream(2.0, Constant(1.0), Constant(0.5), GeometricTurns(5.0), gap)
    time = characteristic_time([stream], float(capacity))
    near(row, "characteristic_time_s", time)
    near(row, "turn_hit_ratio_excluding_first_turns", gap.cdf(time))


def test_limits_and_arrays():
    rate = che.zipf_popularity(50, 0.8)
    empty, full = che.lru(rate, 0.0), che.lru(rate, 50.0)
    assert (empty.time, empty.hit_ratio) == (0.0, 0.0)
    assert np.isinf(full.time) and full.hit_ratio == 1.0
    many = che.lru(rate[:, None], np.array([5.0, 20.0]))
    assert np.allclose(many.hit_ratio, [che.lru(rate, c).hit_ratio for c in (5.0, 20.0)], rtol=1e-12)
