"""Knees and cliffs: algebra on curves with known answers, and the reference vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvmodel.formulas import characteristic_time as che
from kvmodel.formulas import knee
from tests.theory_vectors import vectors_of


def vectors_with(reference_data, *keys):
    return [v for v in vectors_of(reference_data, "che_cache") if set(keys) <= set(v["inputs"])]


curves = arrays(float, 12, elements=st.floats(0.0, 100.0))
GRID = np.geomspace(1.0, 1000.0, 12)


def test_economic_knee_of_a_square_root():
    """V = 2 a sqrt(C): marginal value a/sqrt(C) = r at C = (a/r)^2; +-20 % of rent moves it by 1/1.44 and
    1/0.64."""
    capacity = np.linspace(1.0, 400.0, 4000)
    found = knee.economic_knee(capacity, 2.0 * 5.0 * np.sqrt(capacity), np.array([0.5, 1.0]))
    assert np.allclose(found.capacity, [100.0, 25.0], atol=0.1)
    assert np.allclose(found.low, [100.0 / 1.44, 25.0 / 1.44], atol=0.1)
    assert np.allclose(found.high, [100.0 / 0.64, 25.0 / 0.64], atol=0.1)
    assert not (found.at_lower_edge.any() or found.at_upper_edge.any())


def test_economic_knee_of_the_reference_cache(reference_data):
    for row in vectors_with(reference_data, "value_per_hit_usd", "rent_usd_per_object_second"):
        i, expected = row["inputs"], row["expected"]
        best = expected["optimal_cache_objects"]
        capacity = best * np.linspace(0.93, 1.07, 301)
        rate = che.zipf_popularity(i["objects"], i["zipf_alpha"])
        hit = che.lru(rate[:, None], capacity).hit_ratio
        value = i["request_rate_per_s"] * i["value_per_hit_usd"] * hit
        found = knee.economic_knee(capacity, value, i["rent_usd_per_object_second"])
        assert found.capacity == pytest.approx(best, abs=1.01 * (capacity[1] - capacity[0])), row["id"]  # a grid step
        at_knee = np.interp(found.capacity, capacity, hit)
        assert at_knee == pytest.approx(expected["hit_ratio"], rel=5e-4), row["id"]


def test_no_rent_buys_everything_useful_and_infinite_rent_nothing():
    value = np.array([0.0, 1.0, 2.0, 2.0])
    found = knee.economic_knee(np.arange(1.0, 5.0), value, np.array([0.0, np.inf]))
    assert list(found.capacity) == [3.0, 1.0]
    assert list(found.at_lower_edge) == [False, True]


def test_the_knee_jumps_over_a_cliff_that_pays():
    """Loop of 10 objects under LRU: nothing below 10. The raw slope at 1 is zero, the hull's is 1/10."""
    capacity = np.arange(1.0, 21.0)
    value = np.where(capacity >= 10.0, 1.0, 0.0)
    assert knee.economic_knee(capacity, value, 0.1).capacity == 10.0
    assert knee.economic_knee(capacity, value, 0.12).capacity == 1.0
    drop = knee.cliff(capacity, value)
    assert (drop.start, drop.end, drop.rise, drop.present) == (1.0, 10.0, 1.0, True)


def test_concave_curves_have_no_cliff():
    assert not knee.cliff(GRID, np.log(GRID)).present


@given(curves)
def test_hull_lies_above_and_is_concave(value):
    hull, slope = knee.concave_hull(GRID, value), knee.marginal_value(GRID, value)
    assert np.all(hull >= value - 1e-9)
    assert np.all(np.diff(slope) <= 1e-9 * (1.0 + np.abs(slope).max()))
    assert hull[0] == value[0] and hull[-1] == pytest.approx(value[-1], abs=1e-9)
    assert np.allclose(knee.concave_hull(GRID, hull), hull, atol=1e-9)


def test_talus_worked_example():
    """Beckmann and Sanchez, HPCA 2015 (as in theory_vectors): halves at 2 and 5 MB give 6 MPKI at 4 MB."""
    assert knee.concave_hull([2.0, 4.0, 5.0], [-12.0, -11.0, -3.0])[1] == pytest.approx(-6.0)


def test_smallest_capacity_within_a_share():
    assert knee.capacity_within([1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 1.0, 1.0], 0.75) == pytest.approx(2.5)
    assert knee.capacity_within([1.0, 2.0], [1.0, 1.0], 0.99) == 1.0


def test_geometric_knee_of_the_reference_curve(reference_data):
    for row in vectors_with(reference_data, "x", "y"):
        i = row["inputs"]
        assert (i["direction"], i["curve"]) == ("increasing", "concave"), f"{row['id']}: no law for another shape"
        found = knee.geometric_knee(i["x"], i["y"])
        assert found.capacity == pytest.approx(row["expected"]["knee_x"], abs=1e-9), row["id"]
        assert found.prominence == pytest.approx(row["expected"]["max_difference"], abs=1e-9), row["id"]
        assert found.axis == "linear"


def test_hulls_of_the_reference_curves(reference_data):
    """Talus splits a cache between the two points of the curve that the hull joins."""
    for row in vectors_with(reference_data, "curve_MB_mpki", "size_MB"):
        points, size = dict(row["inputs"]["curve_MB_mpki"]), row["inputs"]["size_MB"]
        points = {size: max(points.values())} | points  # as bad as it gets at this size, unless the curve says
        capacity = sorted(points)
        hull = knee.concave_hull(capacity, [-points[c] for c in capacity])[capacity.index(size)]
        assert -hull == pytest.approx(row["expected"]["mpki"], rel=row["tolerance"]["rel"]), row["id"]


@given(arrays(float, (12, 3), elements=st.floats(0.0, 100.0)), st.floats(0.001, 10.0))
def test_arrays_equal_scalars(values, rent):
    many = knee.economic_knee(GRID, values, rent), knee.cliff(GRID, values)
    for i in range(3):
        one = knee.economic_knee(GRID, values[:, i], rent), knee.cliff(GRID, values[:, i])
        for a, b in zip(many, one, strict=True):
            assert np.array_equal(np.stack(a)[..., i], np.stack(b))
