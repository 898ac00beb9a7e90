"""The trace command: results on stdout, one JSON document, files whole or not at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from kvmodel.cli.trace import report, trace, trace_command
from kvmodel.errors import KvmodelError
from kvmodel.traces import TraceError, read_trace
from tests.traces import trace_oracle as oracle

LOOPS = [list(range(10)), [1, 2, 3], list(range(10)), list(range(4))]


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(trace_command)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_json_has_the_fixed_keys(tmp_path, run):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    result = run(path, "--capacities", "5,10", "--json")
    document = json.loads(result.stdout)
    assert {"requests", "block_tokens", "block_accesses", "unique_blocks", "notes"} <= set(document)
    assert {"block_hit_ratio", "prefix_token_hit_ratio"} <= set(document["infinite_cache"])
    assert [row["capacity_blocks"] for row in document["lru"]] == [5, 10]
    assert [row["capacity_blocks"] for row in document["belady"]] == [5, 10]
    assert {"window_s", "mean_blocks", "max_blocks"} <= set(document["working_set"][0])
    assert document["lru"][0]["hit_blocks"] == oracle.lru_hits(LOOPS, 5)


def test_several_files_give_a_list(tmp_path, run):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    assert len(json.loads(run(path, path, "--json").stdout)) == 2


def test_text_names_every_share(tmp_path, run):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    text = run(path, "--tiers", "hbm=4,dram=6", "--break-even-hits", "1").stdout
    for words in ("of block accesses", "of input tokens", "tier dram", "economic knee", "Working set"):
        assert words in text


def test_output_file_is_written_whole(tmp_path, run):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    out = tmp_path / "out.json"
    assert run(path, "--json", "-o", out).stdout == ""
    assert json.loads(out.read_text())["requests"] == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "t.jsonl"]
    assert isinstance(run(path, "-o", tmp_path / "absent" / "x").exception, KvmodelError)


def test_curve_file_holds_every_step(tmp_path, run):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    run(path, "--curve", tmp_path / "curve.csv", "--quiet")
    rows = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    for row in rows:
        assert int(row["hit_blocks"]) == oracle.lru_hits(LOOPS, int(row["capacity_blocks"]))
    with pytest.raises(KvmodelError, match="one file"):
        trace([str(path), str(path)], curve="x")


@pytest.mark.parametrize("words", [("--capacities", "0"), ("--capacities", "many"), ("--tiers", "hbm")])
def test_wrong_sizes_are_usage_errors(tmp_path, run, words):
    assert run(oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS), *words).exit_code == 2


def test_tiers_add_up_and_bytes_follow(tmp_path):
    path = oracle.write_jsonl(tmp_path / "t.jsonl", LOOPS)
    (document,) = trace([str(path)], capacities=[10], tiers=[("hbm", 4), ("dram", 6)], kv_bytes_per_token=100.0)
    assert sum(t["block_hit_ratio"] for t in document["tiers"]) == pytest.approx(
        document["lru"][0]["block_hit_ratio"], abs=2e-6
    )
    assert document["lru"][0]["capacity_bytes"] == 10 * 4 * 100
    assert report(document)


def test_sampling_keeps_sessions_whole_and_states_its_error(tmp_path):
    requests = [[10_000, *range(20 * k, 20 * k + 3 + turn)] for turn in range(4) for k in range(300)]
    path = oracle.write_jsonl(tmp_path / "t.jsonl", requests)
    (whole,) = trace([str(path)], capacities=[600, 2000])
    (sample,) = trace([str(path)], capacities=[600, 2000], sample=0.5)
    assert sample["requests"] % 4 == 0 and 0.35 < sample["requests"] / whole["requests"] < 0.65
    for full, part, error in zip(whole["lru"], sample["lru"], sample["sampling"]["error"], strict=True):
        off = abs(full["block_hit_ratio"] - part["block_hit_ratio"])
        assert off <= 4 * error["standard_error"] + 2 * abs(error["scaling_bias"]) + 0.01
    with pytest.raises(KvmodelError, match="share of sessions"):
        trace([str(path)], sample=0.0)


def test_own_schema_and_reader_accept_the_same_rows(tmp_path):
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "trace.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for number, row in enumerate(schema["examples"]):
        validator.validate(row)
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
        assert read_trace(tmp_path / f"{number}.jsonl", block_tokens=64).requests == 1
    bad = {
        "input_length": -1,
        "output_length": 1.5,
        "hash_ids": [None],
        "hash_ranges": [[1]],
        "timestamp": "now",
    }
    for key, value in bad.items():
        row = {"input_length": 1, key: value}
        assert not validator.is_valid(row)
        (tmp_path / "bad.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(TraceError, match=r"bad\.jsonl:1"):
            read_trace(tmp_path / "bad.jsonl", block_tokens=64)


def test_a_model_sizes_requests_by_its_own_curve(tmp_path):
    """Llama-3.1-8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB of every token; gpt-oss keeps half its
    layers in a window of 128 tokens, so a short request holds more bytes per token than one more token adds."""
    path = oracle.write_jsonl(tmp_path / "t.jsonl", [list(range(30)), list(range(40))])
    (document,) = trace([str(path)], capacities=[10], model="llama-3.1-8b", tiers=[("hbm", "1 MiB"), ("dram", 6)])
    assert document["kv"]["bytes_per_token"] == pytest.approx(131_072)
    assert [tier["capacity_blocks"] for tier in document["tiers"]] == [2**20 // (131_072 * document["block_tokens"]), 6]
    (windowed,) = trace([str(path)], capacities=[10], model="gpt-oss-120b")
    assert windowed["kv"]["bytes_per_token"] > 1.5 * windowed["kv"]["bytes_per_further_token"]
    with pytest.raises(KvmodelError, match="bytes need --model"):
        trace([str(path)], tiers=[("hbm", "1 MiB")])
