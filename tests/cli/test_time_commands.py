"""breakeven, calibrate and the validation page on the command line."""

from __future__ import annotations

import json

import pytest
import yaml

from kvmodel.cli.app import run
from kvmodel.study.load import parse_study
from tests.conftest import ROOT
from tests.studies import STUDY

OPTIONS = ["breakeven", "--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--tensor-parallel", "4", "--prefix", "20k"]
HIT = str(ROOT / "examples" / "slow_disk_hit" / "study.yaml")


def test_one_line_per_tier_and_every_curve(capsys):
    assert run([*OPTIONS, "--tier", "nvme-gen5-tlc", "--tier", "ddr5-8ch", "--tier", "disk=0.06 GB/s"]) == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("* ")]
    assert [line.split(":")[0] for line in lines] == ["* ddr5-8ch", "* nvme-gen5-tlc", "* disk"]  # fast to slow
    assert "disk: recompute." in text and "ddr5-8ch: fetch." in text
    for words in (
        "length of the prefix",
        "under load",
        "behind a queue",
        "Block by block",
        "at once",
        "stores use",
        "Not reuse",
    ):
        assert words in text


def test_json_is_one_document_without_nan(capsys):
    assert run(["breakeven", HIT, "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert set(document) == {"about", "axes", "rows", "sentences", "curves"}
    assert set(document["curves"]) == {"prefix", "load", "queue", "position", "burst", "stores"}
    (least,) = (row["value"] for row in document["rows"] if row["quantity"] == "breakeven.bandwidth")
    assert least == pytest.approx(2.4e9 / 0.9)


def test_scenario_set_csv_and_chart(tmp_path, capsys):
    assert run(["breakeven", HIT, "--scenario", "just_enough", "--csv", "-"]) == 0
    assert capsys.readouterr().out.startswith("case,arm,population,tier,quantity,value")
    pytest.importorskip("vl_convert")
    chart = tmp_path / "chart.svg"
    assert run(["breakeven", HIT, "--set", "tiers.disk.read_bandwidth=3 GB/s", "--chart", str(chart)]) == 0
    assert "disk: fetch." in capsys.readouterr().out and chart.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["breakeven"], "--model, --gpu, --tier missing"),
        (["breakeven", HIT, "--gpu", "h100-sxm"], "not both"),
        ([*OPTIONS, "--tier", "nvme-gen5"], "did you mean"),
        ([*OPTIONS, "--tier", "disk=fast"], "tiers.disk.read_bandwidth"),
        ([*OPTIONS, "--tier", "ddr5-8ch", "--deadline", "5 GB"], "--deadline"),
        (["breakeven", HIT, "--prefix", "0"], "--prefix"),
        (["breakeven", HIT, "--chart", "chart.gif"], "must end in"),
    ],
)
def test_bad_input_is_one_message(words, says, capsys):
    assert run(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err and "Traceback" not in captured.err


def test_calibrated_fragments_fit_into_a_study(tmp_path, capsys):
    """What calibrate writes is read by a study without a change."""
    points = tmp_path / "points.csv"
    points.write_text(
        "tokens,seconds\n" + "".join(f"{n},{0.03 + 2e-5 * n + 4e-10 * n * n}\n" for n in (1e3, 4e3, 16e3, 32e3))
    )
    moves = tmp_path / "moves.csv"
    moves.write_text("bytes,seconds\n" + "".join(f"{n},{1e-3 + n / 20e9}\n" for n in (1e6, 1e8, 1e9)))
    assert run(["calibrate", "prefill", str(points), "-o", str(tmp_path / "prefill.yaml")]) == 0
    assert run(["calibrate", "transfer", str(moves), "--name", "dram", "-o", str(tmp_path / "dram.yaml")]) == 0
    study = yaml.safe_load(STUDY)
    study["deployment"]["prefill"] = yaml.safe_load((tmp_path / "prefill.yaml").read_text())["deployment"]["prefill"]
    study["tiers"]["dram"].update(yaml.safe_load((tmp_path / "dram.yaml").read_text())["tiers"]["dram"])
    record = parse_study(yaml.safe_dump(study, sort_keys=False)).record
    assert record.deployment.prefill.seconds_per_token == pytest.approx(2e-5, rel=1e-3)
    assert record.tiers["dram"].read_bandwidth == pytest.approx(20e9, rel=1e-3)
    assert "left out" in capsys.readouterr().out


def test_calibrate_says_what_is_wrong(tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text("tokens,seconds\n1000,x\n")
    assert run(["calibrate", "prefill", str(points)]) == 2
    assert f"{points}:2: seconds" in capsys.readouterr().err


def measurements(tmp_path):
    lengths = (1000, 2000, 4000, 8000, 16000)
    cases = [
        {
            "id": str(n),
            "kind": "prefill",
            "source": "here",
            "model": "m",
            "dtype": "bf16",
            "gpu": "g",
            "tp": 1,
            "tokens_in": n,
            "tokens_out": 1,
            "hit_fraction": 0.0,
            "tier": "recompute",
            "params": {"concurrency": 1},
            "measured": {"ttft_s": 0.03 + 2e-5 * n},
        }
        for n in lengths
    ]
    path = tmp_path / "measurements.json"
    path.write_text(json.dumps(cases))
    return path


def test_a_validation_page_keeps_its_own_words(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin measurements -->\nold\n<!-- end measurements -->\nafter\n")
    assert run(["evaluate", str(measurements(tmp_path)), "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| prefill | dense | calibrated | 5 |" in text
    page.write_text("no marks")
    assert run(["evaluate", str(measurements(tmp_path)), "--markdown", str(page)]) == 2
    assert "needs the lines" in capsys.readouterr().err


def test_the_page_in_docs_has_its_marks():
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert text.count("<!-- begin measurements -->") == text.count("<!-- end measurements -->") == 1
