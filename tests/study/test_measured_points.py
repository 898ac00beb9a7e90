"""Points from CSV and engine benchmarks: what is read, and one clear message for what cannot be."""

from __future__ import annotations

import json
import math

import pytest

from kvmodel.errors import KvmodelError
from kvmodel.study.measured_points import PREFILL, TRANSFER, read_points

RUN = {"completed": 10, "total_input_tokens": 20_000, "max_concurrency": 2, "request_rate": "inf", "mean_ttft_ms": 90.0}


def write(tmp_path, text, name="points.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_with_units_blanks_and_comments(tmp_path):
    path = write(tmp_path, "# measured\ntokens, seconds, concurrency\n\n1k, 55 ms, 1\n2000,0.1,\n")
    assert read_points([path], PREFILL) == {
        "tokens": [1000, 2000],
        "seconds": [0.055, 0.1],
        "cached_tokens": [0, 0],
        "concurrency": [1, 1],
    }


def test_transfer_without_block_sizes(tmp_path):
    path = write(tmp_path, "bytes,seconds\n1 MiB,1 ms\n")
    assert read_points([path], TRANSFER) == {"bytes": [2**20], "seconds": [1e-3], "block_bytes": [math.inf]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("tokens,seconds\n1000,-3\n", "points.csv:2: seconds: must be more than 0, got -3"),
        ("tokens,seconds\n1000,0\n", "points.csv:2: seconds: must be more than 0"),
        ("tokens,secs\n1000,1\n", "points.csv:1: no column 'secs' is known; did you mean 'seconds'"),
        ("tokens\n1000\n", "points.csv:1: the header lacks seconds"),
        ("tokens,seconds,seconds\n1000,1,1\n", "points.csv:1: a column is named twice"),
        ("tokens,seconds\n1000,1,2\n", "points.csv:2: 3 values, but the header names 2"),
        ("tokens,seconds\n1000,0.1 GB\n", "points.csv:2: seconds: '0.1 GB' is a size in bytes"),
        ("tokens,seconds\n1000,nan\n", "points.csv:2: seconds: 'nan' is not a"),
        ("tokens,seconds\n1000,\n", "points.csv:2: seconds: '' is not a number"),
        ("tokens,cached_tokens,seconds\n1000,2000,1\n", "points.csv:2: cached_tokens 2000 is more than tokens 1000"),
        ("tokens,seconds,concurrency\n1000,1,0\n", "points.csv:2: concurrency: must be at least 1"),
        ('{"a": 1}', "points.csv:1: requests came at a rate of None /s"),
        (json.dumps({**RUN, "completed": None}), "points.csv:1: completed is None"),
        (json.dumps({**RUN, "max_concurrency": None, "request_rate": 4.0}), "rate of 4.0 /s"),
        ("[1]", "points.csv:1: not a benchmark result"),
        (json.dumps(RUN) + "\n{", "points.csv:2: not JSON"),
    ],
)
def test_bad_points_say_file_line_and_reason(tmp_path, text, says):
    with pytest.raises(KvmodelError) as error:
        read_points([write(tmp_path, text)], PREFILL)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_bad_files(tmp_path):
    with pytest.raises(KvmodelError, match="No such file"):
        read_points([tmp_path / "absent.csv"], PREFILL)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KvmodelError, match="not a text file"):
        read_points([tmp_path / "binary.csv"], PREFILL)
    with pytest.raises(KvmodelError, match="has no transfers"):
        read_points([write(tmp_path, json.dumps(RUN))], TRANSFER)
    many = "tokens,seconds\n" + "1000,1\n" * 201
    with pytest.raises(KvmodelError, match="201 points; at most 200"):
        read_points([write(tmp_path, many)], PREFILL)


@pytest.mark.parametrize("text", [json.dumps(RUN), json.dumps([RUN]), json.dumps(RUN, indent=2)])
def test_a_run_is_one_point_of_its_means(tmp_path, text):
    """The keys both engines write: 20,000 tokens over 10 requests, two at a time, 90 ms."""
    points = read_points([write(tmp_path, text, "run.json")], PREFILL)
    assert points == {"tokens": [2000], "seconds": [0.09], "cached_tokens": [0], "concurrency": [2]}


def test_runs_one_per_line_and_several_files(tmp_path):
    lines = write(tmp_path, "\n".join(json.dumps(RUN) for _ in range(2)), "runs.jsonl")
    table = write(tmp_path, "tokens,seconds\n1000,0.05\n")
    assert read_points([lines, table], PREFILL)["tokens"] == [2000, 2000, 1000]


def test_details_of_single_requests_are_points_of_their_own(tmp_path):
    """Failed requests have a time of 0 and are left out; many are thinned."""
    run = {**RUN, "max_concurrency": 1, "input_lens": [300, 100, 200], "ttfts": [0.03, 0.01, 0.0]}
    points = read_points([write(tmp_path, json.dumps(run), "run.json")], PREFILL)
    assert points["tokens"] == [100, 300] and points["seconds"] == [0.01, 0.03]
    run = {**RUN, "max_concurrency": 1, "input_lens": list(range(1, 1001)), "ttfts": [0.1] * 1000}
    assert len(read_points([write(tmp_path, json.dumps(run), "run.json")], PREFILL)["tokens"]) == 100


def test_everything_sent_at_once_waits_for_everything(tmp_path):
    run = {**RUN, "max_concurrency": None}
    assert read_points([write(tmp_path, json.dumps(run), "run.json")], PREFILL)["concurrency"] == [10]
