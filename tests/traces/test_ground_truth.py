"""Every digit of the reference answers for public traces (data/traces/ground_truth.json, made by independent
scripts: exact stack distances, an ordered-dict LRU, libcachesim 0.3.5), for whatever traces the file names.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import pytest

from kvmodel.traces import SummaryOptions, read_trace, trace_summary
from kvmodel.traces.columns import Trace
from kvmodel.traces.hit_curve import lru_curve
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.stack_distance import UNSEEN, stack_distances
from tests.theory_vectors import vectors_of
from tests.traces import trace_oracle as oracle
from tests.traces.reference_traces import files_of

BY_CAPACITY = (
    "lru_block_hit_ratio",
    "belady_hit_ratio",
    "lru_misses_per_s",
    "prefix_lru_forward_touch",
    "prefix_lru_reverse_touch",
)


class Case(NamedTuple):
    name: str
    trace: Trace
    document: dict[str, Any]
    expected: dict[str, Any]


@pytest.fixture
def cases(reference_data):
    """All traces with block ids, each answered once."""
    answered = _answers(reference_data("traces/ground_truth.json"))
    assert answered
    return answered


@cache
def _answers(ground_truth):
    answered = []
    for name, (path, expected) in files_of(ground_truth, "block_accesses").items():
        trace = read_trace(path, block_tokens=expected["block_tokens"])
        capacities = sorted({int(c) for key in BY_CAPACITY for c in expected[key] if c != "inf"})
        windows = sorted({float(s) for key in ("working_set_blocks", "ttl_block_hit_ratio") for s in expected[key]})
        options = SummaryOptions(capacities=capacities, windows_s=windows)
        answered.append(Case(name, trace, trace_summary(trace, options), expected))
    return answered


def test_every_trace_is_of_a_kind_that_is_tested(reference_data):
    truth = json.loads(reference_data("traces/ground_truth.json").read_text(encoding="utf-8"))
    kinds = {"block_accesses", "sessions", "context_tokens"}
    assert [name for name, expected in truth.items() if kinds.isdisjoint(expected)] == []


def test_counts_and_ceilings(cases):
    for name, _, document, expected in cases:
        for key in (
            "requests",
            "block_tokens",
            "block_accesses",
            "unique_blocks",
            "input_tokens",
            "output_tokens",
        ):
            assert document[key] == expected[key], (name, key)
        assert document["duration_s"] == expected["duration_s"], name
        assert document["fraction_blocks_never_reused"] == expected["fraction_blocks_never_reused"], name
        for key, value in expected["infinite_cache"].items():
            assert document["infinite_cache"][key] == value, (name, key)


def test_block_sizes_are_found_from_the_lengths(reference_data):
    for name, (path, expected) in files_of(reference_data("traces/ground_truth.json"), "block_accesses").items():
        assert read_trace(path).block_tokens == expected["block_tokens"], name


def by_capacity(rows):
    return {str(row["capacity_blocks"]): row for row in rows}


def test_hit_ratios_by_capacity(cases):
    for name, _, document, expected in cases:
        lru = by_capacity(document["lru"])
        for capacity, ratio in expected["lru_block_hit_ratio"].items():
            everything = document["infinite_cache"]
            found = everything if capacity == "inf" else lru[capacity]
            assert found["block_hit_ratio"] == ratio, (name, capacity)
        for capacity, misses in expected["lru_misses_per_s"].items():
            assert lru[capacity]["misses_per_s"] == misses, (name, capacity)
        belady = by_capacity(document["belady"])
        for capacity, ratio in expected["belady_hit_ratio"].items():
            assert belady[capacity]["block_hit_ratio"] == ratio, (name, capacity)
        for key in ("prefix_lru_forward_touch", "prefix_lru_reverse_touch"):
            prefixes = by_capacity(document[key])
            for capacity, want in expected[key].items():
                got = prefixes[capacity]
                assert got["prefix_block_hit_ratio"] == want["prefix_block"], (name, key, capacity)
                assert got["prefix_token_hit_ratio"] == want["prefix_token"], (name, key, capacity)
                assert got["resident_block_ratio"] == want["any_resident_block"], (name, key, capacity)


def test_whole_curves(cases):
    for name, trace, _, expected in cases:
        stream = run_stream(trace)
        curve = lru_curve(stream, stack_distances(stream))
        grid = expected["lru_mrc"]
        assert curve.ratio_at(grid["capacity_blocks"]).round(6).tolist() == grid["hit_ratio"], name


def test_times(cases):
    for name, _, document, expected in cases:
        held = {f"{row['window_s']:g}": row for row in document["working_set"]}
        for window, want in expected["working_set_blocks"].items():
            found = held[window]
            if want is None:
                assert found["mean_blocks"] is None, (name, window)
            else:
                assert (found["mean_blocks"], found["max_blocks"]) == (want["mean"], want["max"]), (name, window)
        timers = {f"{row['ttl_s']:g}": row["block_hit_ratio"] for row in document["ttl"]}
        for ttl, ratio in expected["ttl_block_hit_ratio"].items():
            assert timers[ttl] == ratio, (name, ttl)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("stack_distance_blocks", "stack_distance_blocks"),
        ("reuse_gap_s", "inter_reference_time_s"),
        ("time_to_first_reuse_s", "time_to_first_reuse_s"),
        ("input_length", "input_length"),
        ("output_length", "output_length"),
        ("blocks_per_request", "blocks_per_request"),
        ("accesses_per_block", "accesses_per_block"),
    ],
)
def test_distributions(cases, ours, theirs):
    for name, _, document, expected in cases:
        shared = document[ours].keys() & expected[theirs].keys()
        assert shared, name
        for key in shared:
            assert document[ours][key] == pytest.approx(expected[theirs][key], abs=2e-6), (name, key)


def test_arrivals_and_lengths_only(reference_data):
    """Traces without block ids."""
    for name, (path, expected) in files_of(reference_data("traces/ground_truth.json"), "context_tokens").items():
        document = trace_summary(read_trace(path))
        assert document["requests"] == expected["requests"], name
        assert document["duration_s"] == pytest.approx(expected["duration_s"], abs=1e-4), name
        assert document["interarrival_cv"] == pytest.approx(expected["interarrival_cv"], abs=6e-5), name
        lengths, answers = document["input_length"], document["output_length"]
        assert lengths["mean"] == pytest.approx(expected["context_tokens"]["mean"], abs=6e-5), name
        assert answers["p99"] == pytest.approx(expected["generated_tokens"]["p99"], abs=1e-6), name
        assert document["block_accesses"] is None and document["lru"] == [], name


def laid_out(readme):
    """(sessions, seconds between their starts, seconds kept) of the rule in the README of the traces, if it has one."""
    text = " ".join(readme.read_text(encoding="utf-8").split())
    rule = re.search(r"first ([\d,]+) sessions .*? starts at k x ([\d,]+) s; .*? after ([\d,]+) s are cut", text)
    return tuple(int(number.replace(",", "")) for number in rule.groups()) if rule else None


def test_session_file_laid_out_again_gives_the_interleaved_trace(reference_data, tmp_path):
    """Each trace "x_interleaved" of a session file "x_sessions" at hand, by the rule in the README."""
    ground_truth = reference_data("traces/ground_truth.json")
    interleaved = files_of(ground_truth, "block_accesses")
    for name, (path, _) in files_of(ground_truth, "sessions").items():
        _, expected = interleaved.get(name.replace("_sessions", "_interleaved"), (None, None))
        if expected is None or laid_out(reference_data("traces/README.md")) is None:
            continue
        sessions, interval, until = laid_out(reference_data("traces/README.md"))
        short = tmp_path / "sessions.jsonl"
        with gzip.open(path, "rt") as source, short.open("w") as file:
            file.writelines(islice(source, sessions))
        trace = read_trace(short, session_interval_s=interval)
        trace = trace.take((trace.time_us < 1_000_000 * until).nonzero()[0])
        capacities = [int(c) for c in expected["belady_hit_ratio"]]
        document = trace_summary(trace, SummaryOptions(capacities=capacities))
        assert document["requests"] == expected["requests"]
        assert document["unique_blocks"] == expected["unique_blocks"]
        for capacity, row in by_capacity(document["lru"]).items():
            assert row["block_hit_ratio"] == expected["lru_block_hit_ratio"][capacity]
        for capacity, row in by_capacity(document["belady"]).items():
            assert row["block_hit_ratio"] == expected["belady_hit_ratio"][capacity]


def test_stack_distances_of_reference_strings(reference_data, tmp_path):
    """Vectors of theory that give a string of references, one block each."""
    for v in vectors_of(reference_data, "che_cache"):
        if "trace" not in v["inputs"] or "stack_distances" not in v["expected"]:
            continue
        symbols = sorted(set(v["inputs"]["trace"]))
        requests = [[symbols.index(symbol)] for symbol in v["inputs"]["trace"]]
        stream = run_stream(read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", requests)))
        distances = stack_distances(stream)
        found = [None if d == UNSEEN else d for d in distances.distance.tolist()]
        assert found == v["expected"]["stack_distances"], v["id"]
        curve = lru_curve(stream, distances)
        for capacity, hits in v["expected"]["hits_by_capacity"].items():
            assert curve.ratio_at([int(capacity)])[0] * len(requests) == pytest.approx(hits), (v["id"], capacity)


def test_full_curve_of_the_largest_trace_takes_two_seconds_of_cpu(reference_data):
    """In the public file 8.6 million block accesses; 0.2 s when measured, the bar is 2 s."""
    traces = files_of(reference_data("traces/ground_truth.json"), "block_accesses").values()
    path, expected = max(traces, key=lambda found: found[1]["block_accesses"])
    start = time.process_time()
    stream = run_stream(read_trace(path))
    lru_curve(stream, stack_distances(stream))
    assert time.process_time() - start < 2 * max(1, expected["block_accesses"] / 8.6e6)
