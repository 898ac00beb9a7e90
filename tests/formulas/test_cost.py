"""Cost laws: a reference vector, hand arithmetic, limits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import cost
from kvmodel.formulas.kv_size import vector_bytes
from kvmodel.units import GB, HOUR, YEAR


@pytest.fixture(scope="module")
def vectors(reference_data):
    rows = json.loads(reference_data("theory_vectors.json").read_text(encoding="utf-8"))
    return [row for row in rows if row["topic"] == "gpu_serving"]


def test_vectors_of_cost_per_session(vectors):
    for row in (row for row in vectors if "usd_per_slo_session" in row["expected"]):
        given_, expected = row["inputs"], row["expected"]
        rate = given_["fleet_usd_per_hour"] / HOUR
        for attainment, key in ((given_["slo_attainment"], "usd_per_slo_session"), (1.0, "usd_per_offered_session")):
            found = cost.cost_per_qualified_session(
                rate, session_rate=given_["offered_sessions_per_s"], attainment=attainment
            )
            assert found == pytest.approx(expected[key], rel=row["tolerance"]["rel"]), row["id"]


def test_vectors_of_bytes_per_token(vectors):
    dtypes = {1: "fp8", 2: "bf16", 4: "fp32"}
    for row in (row for row in vectors if "kv_bytes_per_token" in row["expected"]):
        shape = row["inputs"]
        dtype = dtypes[shape["bytes_per_element"]]
        if "kv_lora_rank" in shape:
            width = vector_bytes(shape["kv_lora_rank"] + shape["rope_dim"], dtype)
        else:
            width = 2 * shape["kv_heads"] * vector_bytes(shape["head_dim"], dtype)
        assert shape["layers"] * width == row["expected"]["kv_bytes_per_token"], row["id"]


def test_a_terabyte_by_hand():
    # 1 TB at 0.2 USD/GB is 200 USD; over four years 200 / (4 x 8760 h) = 0.0057 USD/h
    assert cost.amortized_rate(1e12, price=0.2 / GB, service_life=4 * YEAR) * HOUR == pytest.approx(200 / (4 * 8760))
    # 25 W at 1.3 and 0.10 USD/kWh is 0.00325 USD/h
    rate = cost.power_rate(25.0, electricity=0.10 / 3.6e6, power_usage_effectiveness=1.3)
    assert rate * HOUR == pytest.approx(25e-3 * 1.3 * 0.10)
    assert cost.rented_rate(1e9, rent=0.023 / GB) == pytest.approx(0.023)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1e-3, 1.0))
def test_money_multiplies_up(rate, sessions, attainment):
    each = cost.cost_per_qualified_session(rate, session_rate=sessions, attainment=attainment)
    assert each * sessions * attainment == pytest.approx(rate)
    assert each >= cost.cost_per_qualified_session(rate, session_rate=sessions)


def test_nothing_qualified_costs_without_end_and_arrays_equal_scalars():
    rates = np.array([0.0, 1.0, 2.0])
    found = cost.cost_per_qualified_session(6.0, session_rate=rates)
    np.testing.assert_array_equal(found, [np.inf, 6.0, 3.0])
    assert [cost.cost_per_qualified_session(6.0, session_rate=r) for r in rates] == list(found)
