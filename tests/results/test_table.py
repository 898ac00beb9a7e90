"""The result table: selection, frames, summaries over draws, JSON without NaN."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvmodel.results.table import Axis, Row, Table, central

AXES = (Axis("tiers.dram.capacity", np.array([1e9, 2e9]), "B"), Axis("draw", np.arange(4)))


def table() -> Table:
    rows = (
        Row("a", 1.0, "", "a number that does not vary"),
        Row("b", np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, np.inf]]), "s", "varies", arm="all_tiers"),
        Row("c", np.array([[np.nan], [5.0]]), "B", "infeasible at one point", tier="dram", flags=("why", "and why")),
    )
    return Table(rows, AXES, {"name": "test", "arms": ["all_tiers"]})


def test_frame_has_rows_times_sweep_points_and_quantiles_over_draws():
    frame = table().to_frame()
    assert list(frame.columns[-5:]) == ["flags", "tiers.dram.capacity", "p05", "p50", "p95"]
    assert len(frame) == 6
    b = frame[frame.quantity == "b"].reset_index(drop=True)
    assert b.value[0] == 2.5 and (b.p05[0], b.p50[0], b.p95[0]) == (1.0, 2.0, 4.0)
    assert np.isinf(b.value[1]) and b.p50[1] == 2.0
    assert frame[frame.quantity == "c"].value.isna().tolist() == [True, False]
    assert set(frame[frame.quantity == "c"]["flags"]) == {"why; and why"}


def test_json_has_no_nan_and_says_inf():
    text = json.dumps(table().to_json(), allow_nan=False)
    rows = json.loads(text)["rows"]
    assert {row["value"] for row in rows if row["quantity"] == "b"} == {2.5, "inf"}
    assert [row["value"] for row in rows if row["quantity"] == "c"] == [None, 5.0]


def test_one_value_or_an_error_that_says_what_there_is():
    assert table().value("a") == 1.0
    with pytest.raises(KeyError, match="0 rows of 'z'"):
        table().value("z")


def test_central_is_a_value_that_occurs():
    assert central(np.array([1.0, 2.0, np.nan, 10.0])) == 2.0
    assert np.isnan(central(np.nan))
    assert central(np.array([1.0, np.inf, np.inf])) == np.inf


def test_repr_is_readable():
    text = repr(table())
    assert text.startswith("kvmodel result: 3 rows, 1 case(s), tiers.dram.capacity x 2, draw x 4")
    assert "<table" in table()._repr_html_()
