"""Charts: titles say what the table says, specifications compile, and what cannot be drawn is left out."""

from __future__ import annotations

import json

import altair as alt
import numpy as np
import pytest

from kvmodel.report.charts import figures
from kvmodel.results.table import Axis, Table

from . import hand_made
from .hand_made import TIB

TITLES = {
    "arms": "all_tiers is cheapest: 0.36 USD per qualified session at 0.03 /s",
    "capacity:nvme": "nvme earns its rent up to 1.60 TiB; the study has 6.40 TiB",
    "prefix": "Fetching is faster than recomputing: dram from 505 tokens, nvme never",  # 0.05 s / (1e-4 - 1e-6) s
    "chain": "80.0 % of prompt tokens were computed before; 60.0 % are still held, 50.0 % arrive in time",
    "writes": "nvme takes 400 MB/s of a write budget of 1.00 GB/s and lasts 12.4 yr",  # 3.9e8 s / 31,536,000 s
}


def named(table: Table):
    return {figure.name: figure for figure in figures(table)}


def records_of(spec):
    """Data of a specification, wherever it stands, each set once."""
    found = [] if "data" not in spec else spec["data"].get("values", [])
    found = found + [record for data in spec.get("datasets", {}).values() for record in data]
    for layer in spec.get("layer", []):
        found += [record for record in records_of(layer) if record not in found]
    return found


def test_titles_state_the_finding():
    assert {name: figure.title for name, figure in named(hand_made.table()).items()} == TITLES


def test_losses_in_the_caption_are_differences_of_the_printed_shares():
    caption = named(hand_made.table())["chain"].caption
    assert "20.0 points are lost because no tier" in caption and "10.0 because fetching" in caption


@pytest.mark.parametrize(
    "knee, expected",
    [
        (0.1 * TIB, "does not earn its rent even at 102 GiB"),  # 6.4 TiB / 64
        (102.4 * TIB, "earns its rent up to 102 TiB at least"),  # 6.4 TiB x 16
        (9.6 * TIB, "earns its rent up to 9.60 TiB; the study has 6.40 TiB"),
    ],
)
def test_knee_at_the_edges_of_what_was_looked_at(knee, expected):
    table = hand_made.table()
    table.curves["capacity:nvme"] = hand_made.capacity_curve(knee)
    assert expected in named(table)["capacity:nvme"].title


def test_a_knee_that_is_not_known_says_why():
    table = hand_made.table()
    table.curves["capacity:nvme"] = hand_made.capacity_curve(np.nan, flags=("no knee: prices.nvme is not given",))
    figure = named(table)["capacity:nvme"]
    assert figure.title == "Effective reuse by capacity of nvme; the study has 6.40 TiB"
    assert "No knee: prices.nvme is not given." in figure.caption


def test_specifications_hold_no_address_and_no_number_json_lacks():
    table = hand_made.table()
    for figure in figures(table):
        for spec in figure.specs:
            assert "http" not in json.dumps(spec, allow_nan=False)
            assert len(json.dumps(spec)) < 40_000


def test_specifications_are_valid():
    for figure in figures(hand_made.table()):
        for spec in figure.specs:
            alt.LayerChart.from_dict(spec) if "layer" in spec else alt.Chart.from_dict(spec)


def test_specifications_draw():
    vl_convert = pytest.importorskip("vl_convert")
    texts = {}
    for figure in figures(hand_made.table()):
        texts[figure.name] = "".join(vl_convert.vegalite_to_svg({**spec, "width": 500}) for spec in figure.specs)
    assert "knee: 1.60 TiB" in texts["capacity:nvme"] and "study: 6.40 TiB" in texts["capacity:nvme"]
    assert "512 GiB" in texts["capacity:nvme"] or "1 TiB" in texts["capacity:nvme"]
    assert "typical prefix: 3.21 k tokens" in texts["prefix"]
    assert "none: limits kept at no rate" in texts["arms"] and "0.36 USD" in texts["arms"]
    assert "budget 1.00 GB/s" in texts["writes"]
    assert "fetch from nvme" in texts["prefix"]


def test_draws_show_their_range():
    draws = np.linspace(0.2, 0.4, 101)
    table = hand_made.table(cost=(np.inf, 0.9, draws), axes=(Axis("draw", np.arange(101)),))
    spec = named(table)["arms"].specs[1]
    (drawn,) = [record for record in records_of(spec) if record["name"] == "all_tiers"]
    assert [drawn[key] for key in ("y", "low", "high")] == pytest.approx([0.3, 0.21, 0.39])


def test_a_sweep_is_drawn_over_its_first_axis():
    x = np.geomspace(256 * 2.0**30, 4 * TIB, 5)
    cost = np.array([0.5, 0.4, 0.3, 0.35, np.inf])[:, None] * np.ones(7)
    axes = (Axis("tiers.dram.capacity", x, "B"), Axis("draw", np.arange(7)))
    table = hand_made.table(cost=(np.inf, 0.9, cost), axes=axes)
    assert named(table)["sweep"].title == (
        "Over tiers.dram.capacity from 256 GiB to 4.00 TiB a qualified session costs least with all_tiers: "
        "0.3 USD at 1.00 TiB"
    )


def test_several_cases_are_compared():
    table = hand_made.table().merge([hand_made.table("long", cost=(np.inf, 0.2, 0.5))])
    assert named(table)["cases"].title == "all_tiers is cheapest per qualified session in 1 of 2 cases"


def test_a_table_without_results_has_no_charts():
    table = hand_made.table(curves=False)
    assert figures(table.select(quantity="capacity.hbm_pool")) == []
    assert figures(Table(())) == []
