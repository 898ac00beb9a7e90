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
        value = table.value(row["quantity"], case=row.get("case") or "base", arm=row["arm"], tier=row["tier"],
                            population=row["population"])
        assert central(value) == pytest.approx(float(row["value"]), rel=float(row["tolerance"]), abs=1e-12), row
    assert np.all([np.isfinite(central(r.value)) or r.flags or np.isinf(central(r.value)) for r in table])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_example_says_what_it_shows(path):
    assert len(path.with_name("README.md").read_text(encoding="utf-8")) > 200
