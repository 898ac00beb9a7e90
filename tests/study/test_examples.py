"""Every shipped example runs and gives what its expected.csv promises."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from kvmodel.results.table import central
from kvmodel.study.load import load_study
from kvmodel.study.run import plan
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/study.yaml"))


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_example_gives_its_expected_summary(path):
    study = load_study(path)
    expected = rows_of(path.with_name("expected.csv"))
    assert expected
    scenarios = [name for name in dict.fromkeys(row.get("case") or "base" for row in expected) if name != "base"]
    table = plan(study, scenarios, draws=20)
    for row in expected:
        value = table.value(
            row["quantity"],
            case=row.get("case") or "base",
            arm=row["arm"],
            tier=row["tier"],
            population=row["population"],
        )
        assert central(value) == pytest.approx(float(row["value"]), rel=float(row["tolerance"]), abs=1e-12), row
    assert all(not np.isnan(central(row.value)) or row.flags for row in table)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_example_says_what_it_shows(path):
    assert len(path.with_name("README.md").read_text(encoding="utf-8")) > 200


def test_the_main_example_is_swept_ten_by_ten():
    path = ROOT / "examples" / "agents_on_h100" / "study.yaml"
    sweep = {
        "tiers.dram.capacity": {"geomspace": ["256 GiB", "4 TiB", 10]},
        "workload.agents.arrivals": {"linspace": ["0.02 /s", "0.1 /s", 10]},
    }
    table = plan(load_study(path, {"sweep": sweep, "compare": ["all_tiers"]}), draws=0)
    resident = table.value("reuse.resident", arm="all_tiers", tier="", population="")
    assert resident.shape == (10, 10)
    assert np.all(np.diff(resident, axis=0) > -2e-3)  # more memory keeps no less, within the quadrature error
    assert np.all(np.diff(resident, axis=1) < 2e-3)  # more sessions keep no more
    assert len(table.to_frame()) == 100 * len(table)


def test_the_main_example_is_drawn_ten_thousand_times():
    path = ROOT / "examples" / "agents_on_h100" / "study.yaml"
    table = plan(load_study(path), draws=10_000)
    cost = table.value("cost.rate", tier="nvme", arm="")
    assert cost.shape == (10_000,)
    # 25.6 TB at 0.1 to 0.4 USD/GB, log-uniform, over 4 years, and 4 x 18 W at the list's electricity
    record = load_study(path).record.prices
    power = 4 * 18 * record.electricity * record.power_usage_effectiveness
    mean = 25.6e3 * 0.3 / np.log(4) / record.amortization + power
    assert np.mean(cost) == pytest.approx(mean, rel=1e-4)  # stratified draws: far below 1/sqrt(n)
