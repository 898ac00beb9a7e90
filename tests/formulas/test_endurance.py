"""Endurance of drives against the field's vectors, a datasheet, and the laws of life and budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import endurance, write_amplification
from kvmodel.units import DAY, HOUR, YEAR
from tests.theory_vectors import disagreements, vectors_of

TB, MB = 1e12, 1e6
POSITIVE = st.floats(1e-3, 1e3)


def answer(i):
    """What a vector of the topic asks, from whatever its inputs give."""
    found = {}
    capacity = i.get("capacity_TB", 0.0) * TB
    years = i.get("warranty_years", 5.0)
    warranty = years * i.get("days_per_year", 365) * DAY
    if "retention_hours_at_30C" in i:
        kept = endurance.power_off_retention(
            i["retention_hours_at_30C"] * HOUR, 30.0, i["storage_temperature_C"], i.get("activation_energy_eV", 1.1)
        )
        return {"retention_hours": kept / HOUR}
    if "tbw_random_TB" in i:
        ratio = endurance.rated_amplification(i["tbw_random_TB"], i["tbw_sequential_TB"])
        found["implied_random_over_sequential_waf"] = ratio
        if "raw_nand_TB_assumed" in i:
            alpha = write_amplification.physical_over_logical(i["raw_nand_TB_assumed"], i["capacity_TB"])
            found["lambert_waf_at_assumed_alpha"] = write_amplification.fifo_amplification(alpha)
        return found
    rated = i["tbw_TB"] * TB if "tbw_TB" in i else endurance.rated_writes(capacity, i["dwpd"], warranty)
    found["tbw_TB"] = found[f"tbw_{years:g}y_TB"] = rated / TB
    found["dwpd"] = endurance.drive_writes_per_day(rated, capacity, warranty) if capacity else None
    inside, ours = i.get("waf_rated", 1.0), i.get("waf_actual", i.get("waf", i.get("waf_rated", 1.0)))
    found["host_write_MBps"] = endurance.write_budget(warranty, rated, inside, ours) / MB
    if "raw_nand_TB" in i:
        found["pe_cycles"] = endurance.program_erase_cycles(rated / TB, i["raw_nand_TB"], inside)
    rate = next((v * MB for k, v in i.items() if k in ("host_write_MBps", "host_rate_MBps", "write_MBps")), None)
    if rate is not None:
        life = endurance.lifetime(rate, rated, inside, ours)
        found |= {"lifetime_years": life / YEAR, "life_years": life / YEAR, "lifetime_days": life / DAY}
    return found


def test_vectors(reference_data):
    mine = vectors_of(reference_data, "ssd_endurance")
    assert disagreements(mine, lambda v: answer(v["inputs"])) == []


def test_a_datasheet_meets_the_theory():
    """Micron 9550 MAX 3.2 TB, StorageReview's table: 17,520 TB random, 37,200 TB sequential. 4 TiB of flash
    assumed."""
    rated = endurance.rated_amplification(17520, 37200)
    alpha = write_amplification.physical_over_logical(4 * 2.0**40, 3.2 * TB)
    assert rated == pytest.approx(2.12, abs=0.005)
    assert write_amplification.fifo_amplification(alpha) == pytest.approx(rated, rel=0.05)


def test_collection_is_not_counted_twice():
    """A drive used as it was rated lives its rated life, whichever of its two ratings is taken."""
    rate = 3.2 * TB * 3 / DAY  # 3.0 drive writes per day
    by_random = endurance.lifetime(rate, 17520 * TB, endurance.rated_amplification(17520, 37200), 37200 / 17520)
    by_sequential = endurance.lifetime(rate, 37200 * TB, 1.0, 37200 / 17520)
    assert by_random == pytest.approx(5 * YEAR) == by_sequential


def test_write_through_wears_a_drive_out_in_weeks():
    """By hand: 1 GB/s host writes at A = 2.5 into 14,016 TB rated at A = 4 is 14016e12 * 4 / 2.5e9 s = 260
    days."""
    assert endurance.lifetime(1e9, 14016 * TB, 4.0, 2.5) / DAY == pytest.approx(259.56, abs=0.01)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, st.floats(1.001, 100.0))
def test_budget_and_lifetime_are_inverse_and_life_falls(rate, rated, own, ours, more):
    life = endurance.lifetime(rate, rated, own, ours)
    assert endurance.write_budget(life, rated, own, ours) == pytest.approx(rate)
    assert endurance.lifetime(rate * more, rated, own, ours) < life
    assert endurance.lifetime(rate, rated, own, ours * more) < life
    assert endurance.lifetime(rate, rated * more, own, ours) > life


@given(POSITIVE, POSITIVE, POSITIVE)
def test_drive_writes_and_rated_writes_are_inverse(capacity, per_day, warranty):
    rated = endurance.rated_writes(capacity, per_day, warranty)
    assert endurance.drive_writes_per_day(rated, capacity, warranty) == pytest.approx(per_day)


@given(POSITIVE, POSITIVE)
def test_drives_needed_carry_the_flow(flow, budget):
    drives = endurance.drives_needed(flow, budget)
    assert drives * budget >= flow * (1 - 1e-12) and (drives - 1) * budget < flow


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_wear_cost_of_a_life_is_the_drive(rate, price, rated, own, ours):
    life = endurance.lifetime(rate, rated, own, ours)
    assert endurance.wear_cost_per_byte(price, rated, own, ours) * rate * life == pytest.approx(price)


def test_write_flow_of_growing_sessions():
    context = np.array([100.0, 250.0, 420.0])  # after each turn; blocks of 64
    appended = endurance.session_writes_appended(context, 64.0)
    rewritten = endurance.session_writes_rewritten(context, 64.0)
    assert appended == 384  # six full blocks
    assert rewritten == 128 + 256 + 448
    assert endurance.write_flow(1e6, copies=2, rewrites=rewritten / appended) == pytest.approx(2e6 * 832 / 384)
    assert endurance.daily_writes([1e6, 10e6], [0.9, 0.1]) == pytest.approx(1.9e6 * DAY)


def test_ends():
    assert endurance.lifetime(0.0, TB) == np.inf
    assert endurance.lifetime(np.inf, TB) == 0.0 == endurance.lifetime(1.0, TB, 1.0, np.inf)
    assert endurance.write_budget(np.inf, TB) == 0.0 and endurance.write_budget(0.0, TB) == np.inf
    assert endurance.drives_needed(0.0, 1.0) == 0.0 and endurance.drives_needed(1.0, 0.0) == np.inf
    assert list(endurance.rated_amplification_valid([0, 2, 2], [1, 1, 4])) == [False, False, True]


def test_arrays_equal_scalars():
    rate, rated = np.array([[0.0], [1e9]]), np.array([1e15, 2e15, 3e15])
    life = endurance.lifetime(rate, rated, 2.0, 1.5)
    assert life.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert life[i, j] == endurance.lifetime(rate[i, 0], rated[j], 2.0, 1.5)
