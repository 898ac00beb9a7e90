"""`kvmodel endurance` and `kvmodel retention`: text, JSON, CSV, charts, and refusals."""

from __future__ import annotations

import json

import pytest

from kvmodel.cli.app import run
from tests.conftest import ROOT
from tests.studies import STUDY

WORN = str(ROOT / "examples" / "worn_out_in_weeks" / "study.yaml")
PAUSED = str(ROOT / "examples" / "paused_sessions" / "study.yaml")


def test_endurance_says_how_long_and_what_would_help(capsys):
    assert run(["endurance", WORN]) == 0
    out = capsys.readouterr().out
    assert "the rated wear is used up in 38.8 d" in out and "short of the 5.00 yr wanted" in out
    for word in (
        "Flash bytes per host byte",
        "in log order",
        "Rules of admission",
        "coin",
        "shortest context",
        "nvme by uses",
    ):
        assert word in out


def test_endurance_under_a_scenario_and_a_set_value(capsys):
    assert run(["endurance", WORN, "--scenario", "five_years"]) == 0
    out = capsys.readouterr().out
    assert "longer than the 5.00 yr wanted" in out and "overloaded from 0.01 to 0.5:" in out
    assert run(["endurance", WORN, "--set", "tiers.nvme.frees=in_log_order", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (ours,) = (r for r in document["rows"] if r["quantity"] == "endurance.amplification")
    assert ours["value"] == 1
    assert set(document["curves"]) == {"probability:nvme", "uses:nvme", "minimum_tokens:nvme"}


def test_retention_prints_windows_prices_and_plans(capsys):
    assert run(["retention", PAUSED]) == 0
    out = capsys.readouterr().out
    for word in (
        "how long a waiting session is worth keeping",
        "price of a session-hour",
        "cheapest: one_hour",
        "hbm, generating",
        "Value of keeping",
        "does not pay",
        "at once",
    ):
        assert word in out


def test_retention_writes_files(tmp_path, capsys):
    table, chart = tmp_path / "table.csv", tmp_path / "chart.svg"
    assert (
        run(
            [
                "retention",
                PAUSED,
                "--json",
                "-o",
                str(tmp_path / "all.json"),
                "--csv",
                str(table),
                "--chart",
                str(chart),
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == ""
    rows = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["rows"]
    assert {"retention.window", "price.1h.session_hour", "value.rank"} <= {r["quantity"] for r in rows}
    assert table.read_text(encoding="utf-8").startswith("case,")
    assert "<svg" in chart.read_text(encoding="utf-8")


def test_endurance_draws_its_curves(tmp_path):
    chart = tmp_path / "chart.svg"
    assert run(["endurance", WORN, "-o", str(tmp_path / "out.txt"), "--chart", str(chart)]) == 0
    text = chart.read_text(encoding="utf-8")
    assert "lifetime [years]" in text and "effective reuse" in text


@pytest.mark.parametrize(
    ("command", "change", "named"),
    [
        ("endurance", ("  nvme: {kind: nvme, preset: micron-9550-max-3.2tb, count: 2}\n", ""), "none of the tiers"),
        ("retention", ("prices: {preset: example-2026-11}", "prices: {}"), "prices.gpu is not given"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(tmp_path, capsys, command, change, named):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace(*change), encoding="utf-8")
    assert run([command, str(path)]) == 2
    assert named in capsys.readouterr().err


def test_a_chart_of_an_unknown_kind_is_refused(tmp_path, capsys):
    assert run(["endurance", WORN, "-o", str(tmp_path / "o"), "--chart", str(tmp_path / "chart.bmp")]) == 2
    assert ".svg" in capsys.readouterr().err
