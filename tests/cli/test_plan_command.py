"""`kvmodel plan`: every way out, exit statuses, files whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pandas as pd
import pytest

from kvmodel.cli import console
from kvmodel.cli.app import run
from kvmodel.study import run as run_module
from kvmodel.study.json_schema import schema
from tests.studies import STUDY

TARGETS = "targets: {reuse.timely: '>= 0.5', endurance.lifetime: '>= 900 yr'}\n"


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY + TARGETS + "scenarios: {small: {tiers.dram.capacity: 8 GiB}}\n", encoding="utf-8")
    return path


def test_the_summary_says_verdict_tiers_chain_knee_and_targets(study, capsys):
    assert run(["plan", str(study)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in ("* all_tiers wins against no_reuse", "Arms,", "Tiers (", "Reuse of all_tiers", "Knee:", "Retention:"):
        assert words in out
    assert "reuse.timely >= 0.5 (all_tiers): met" in out
    assert "endurance.lifetime >= 900 yr (nvme): missed" in out


def test_json_is_one_document_of_the_committed_shape(study, capsys):
    assert run(["plan", str(study), "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(schema("result")["required"]) <= set(document)
    for row in document["rows"]:
        assert set(schema("result")["properties"]["rows"]["items"]["required"]) <= set(row)
    assert document["about"]["name"] == "test" and len(document["about"]["study_sha256"]) == 16


def test_files(study, tmp_path, capsys):
    out, table = tmp_path / "out.txt", tmp_path / "out.csv"
    assert run(["plan", str(study), "-o", str(out), "--csv", str(table), "--scenario", "small", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert "=== small ===" in out.read_text(encoding="utf-8")
    frame = pd.read_csv(table)
    assert set(frame.case) == {"base", "small"}
    assert {"case", "tier", "quantity", "value", "unit", "definition", "flags"} <= set(frame.columns)


@pytest.mark.parametrize(("options", "status"), [(["--check"], 3), ([], 0), (["--check", "--set", "targets={}"], 0)])
def test_check_ends_with_three_when_a_target_is_missed(study, options, status, capsys):
    assert run(["plan", str(study), *options]) == status
    assert ("target missed: endurance.lifetime >= 900 yr (nvme)" in capsys.readouterr().err) == (status == 3)


def test_seed_changes_draws_and_nothing_else(study, capsys):
    drawn = ["--json", "--draws", "30", "--set", "uncertain={prices.nvme: {uniform: [0.1 USD/GB, 0.3 USD/GB]}}"]
    answers = []
    for seed in ("1", "1", "2"):
        assert run(["plan", str(study), *drawn, "--seed", seed]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        answers.append({(r["arm"], r["population"], r["tier"], r["quantity"]): r["value"] for r in rows})
    assert answers[0] == answers[1]
    differing = {key[3] for key in answers[0] if answers[0][key] != answers[2][key]}
    assert differing and all(name.startswith(("cost.", "retention.")) for name in differing)


def test_verification_stands_beside_the_closed_form(study, capsys, monkeypatch):
    monkeypatch.setattr(run_module, "verified", partial(run_module.verified, turns=20_000))
    assert run(["plan", str(study), "--verify", "--json", "--set", "compare=[local_reuse, all_tiers]"]) == 0
    rows = {}
    for row in json.loads(capsys.readouterr().out)["rows"]:
        if row["quantity"].startswith("verify.") and row["unit"] == "":
            key = (row["arm"], row["population"], row["tier"], row["definition"].split(",")[0])
            rows.setdefault(key, {})[row["quantity"].removeprefix("verify.")] = row["value"]
    # own context and shared prefix down to one tier and to three; resident, timely, prefill and in time of two arms
    assert len(rows) == 2 * (1 + 3) + 4 * 2
    for found in rows.values():
        assert abs(found["closed_form"] - found["simulated"]) <= 0.015 + 3 * found["standard_error"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        console.write_file(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_interruption_and_defects_have_their_statuses(study, monkeypatch, capsys):
    def fails(error):
        def work(*_, **__):
            raise error

        return work

    monkeypatch.setattr("kvmodel.study.load.load_study", fails(KeyboardInterrupt()))
    assert run(["plan", str(study)]) == 130
    monkeypatch.setattr("kvmodel.study.load.load_study", fails(ZeroDivisionError("a defect")))
    assert run(["plan", str(study)]) == 1
    err = capsys.readouterr().err
    assert "unexpected ZeroDivisionError: a defect" in err and "--debug" in err and "Traceback" not in err
    with pytest.raises(ZeroDivisionError):
        run(["--debug", "plan", str(study)])


def test_a_reader_that_goes_away_is_no_error(study):
    command = f"{sys.executable} -m kvmodel plan {study} --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_a_starter_study_plans(tmp_path, capsys):
    path = tmp_path / "new.yaml"
    assert run(["new", str(path)]) == 0
    assert run(["plan", str(path), "--scenario", "busy"]) == 0
    assert "all_tiers wins against" in capsys.readouterr().out
