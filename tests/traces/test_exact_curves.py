"""Run-based curves against block-by-block simulation, on random traces: trees, and ids that form none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.traces import SummaryOptions, read_trace, trace_summary
from kvmodel.traces.belady import belady_hits
from kvmodel.traces.hit_curve import lru_curve
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.stack_distance import earlier_sums, stack_distances
from tests.traces import trace_oracle as oracle

FORESTS = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=14)
ANY_IDS = st.lists(st.lists(st.integers(0, 12), max_size=9), min_size=1, max_size=14)


def as_tree(branches: list[list[int]]) -> list[list[int]]:
    """Block ids that name a block and all before it: equal branch prefixes get equal ids."""
    names: dict[tuple[int, ...], int] = {}
    return [[names.setdefault(tuple(path[: k + 1]), 7 * len(names)) for k in range(len(path))] for path in branches]


def loops(length: int, times: int) -> list[list[int]]:
    return [list(range(length))] * times


@settings(max_examples=150, deadline=None)
@given(st.one_of(FORESTS.map(as_tree), ANY_IDS), st.data())
def test_every_curve_equals_block_by_block_simulation(tmp_path_factory, requests, data):
    lengths = [data.draw(st.integers(max(0, 4 * len(ids) - 3), 4 * len(ids))) for ids in requests]
    path = oracle.write_jsonl(tmp_path_factory.mktemp("t") / "t.jsonl", requests, lengths=lengths)
    check_all_capacities(path, requests, lengths)


@pytest.mark.parametrize(
    "requests",
    [
        loops(1, 5),
        loops(10, 6),
        [[k] for k in range(12)],
        [[5, 5, 5, 5], [5, 5]],
        [[1, 2, 1, 2, 1], [2, 1], [1, 2]],
        [[], [1, 2, 3], [], [1, 2, 3, 4], []],
        [[3, 2, 1], [1, 2, 3], [2, 3, 1], [3, 2, 1]],
        [list(range(10)), list(range(20, 26)), list(range(10)), list(range(20, 26)), [7], list(range(10))],
    ],
    ids=[
        "one block",
        "loop",
        "all unique",
        "repeats",
        "repeats of two",
        "empty requests",
        "no tree",
        "two loops",
    ],
)
def test_hard_streams(tmp_path, requests):
    lengths = [4 * len(ids) for ids in requests]
    check_all_capacities(oracle.write_jsonl(tmp_path / "t.jsonl", requests), requests, lengths)


def check_all_capacities(path, requests, lengths):
    accesses = sum(map(len, requests))
    unique = len({block for ids in requests for block in ids})
    trace = read_trace(path)
    stream = run_stream(trace)
    assert (stream.block_accesses, stream.unique_blocks) == (accesses, unique)
    capacities = list(range(1, unique + 2))
    document = trace_summary(trace, SummaryOptions(capacities=capacities))
    for k, capacity in enumerate(capacities):
        assert document["lru"][k]["hit_blocks"] == oracle.lru_hits(requests, capacity)
        assert document["belady"][k]["hit_blocks"] == oracle.belady_hits(requests, capacity)
        for key, backwards in (("prefix_lru_forward_touch", False), ("prefix_lru_reverse_touch", True)):
            blocks, tokens, anywhere = oracle.prefix_lru(requests, capacity, lengths, 4, last_to_first=backwards)
            got = document[key][k]
            assert got["prefix_block_hit_ratio"] == share(blocks, accesses)
            assert got["prefix_token_hit_ratio"] == share(tokens, sum(lengths))
            assert got["resident_block_ratio"] == share(anywhere, accesses)


def share(part, whole):
    return round(part / whole, 6) if whole else None


@settings(max_examples=100, deadline=None)
@given(ANY_IDS, st.lists(st.integers(0, 4), min_size=14, max_size=14))
def test_times_equal_plain_counting(tmp_path_factory, requests, steps):
    times = np.cumsum([0, *steps])[: len(requests)].tolist()
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    oracle.write_jsonl(path, requests, times=[1000 * t for t in times])
    windows = [1, 2, 3, 7, 50]
    document = trace_summary(read_trace(path), SummaryOptions(windows_s=windows))
    for k, window in enumerate(windows):
        mean, largest = oracle.working_set(requests, times, window)
        held = document["working_set"][k]
        assert held["max_blocks"] == largest
        assert held["mean_blocks"] == (None if mean is None else pytest.approx(mean, abs=6e-4))
        assert document["ttl"][k]["hit_blocks"] == oracle.ttl_hits(requests, times, window)


@settings(max_examples=60, deadline=None)
@given(ANY_IDS, st.integers(1, 30))
def test_no_rule_beats_belady_and_more_cache_never_hurts(tmp_path_factory, requests, capacity):
    stream = run_stream(read_trace(oracle.write_jsonl(tmp_path_factory.mktemp("t") / "t.jsonl", requests)))
    distances = stack_distances(stream)
    curve = lru_curve(stream, distances)
    best = belady_hits(stream, distances.previous, capacity)
    assert int(curve.hits_at(np.array(capacity))) <= best <= belady_hits(stream, distances.previous, capacity + 1)
    assert np.all(np.diff(curve.hits) > 0)


def test_a_loop_just_above_capacity_never_hits_and_just_below_always(tmp_path):
    trace = read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", loops(1000, 20)))
    document = trace_summary(trace, SummaryOptions(capacities=[999, 1000]))
    assert [row["block_hit_ratio"] for row in document["lru"]] == [0.0, 0.95]
    assert document["knee"]["cliffs"] == [{"below_blocks": 800, "fits_blocks": 1000, "gained_share": 1.0}]
    # One slot always holds the current block, so MIN does not reach 999 hits a round.
    assert document["belady"][0]["hit_blocks"] == oracle.belady_hits(loops(1000, 20), 999)


def test_runs_stay_few_and_do_not_depend_on_how_blocks_are_numbered(tmp_path):
    scattered = [[(b * 7919) % 10_007 for b in ids] for ids in loops(500, 3) + loops(300, 2)]
    stream = run_stream(read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", scattered)))
    assert sorted(stream.run_blocks.tolist()) == [200, 300]


def test_ranges_and_ids_are_the_same_trace_and_ranges_are_not_expanded(tmp_path):
    ids = oracle.write_jsonl(tmp_path / "ids.jsonl", [list(range(50)), [*range(30), *range(90, 99)]])
    rows = [
        {
            "timestamp": 0,
            "input_length": 200,
            "output_length": 1,
            "block_tokens": 4,
            "hash_ranges": [[0, 50]],
        },
        {
            "timestamp": 1000,
            "input_length": 156,
            "output_length": 1,
            "block_tokens": 4,
            "hash_ranges": [[0, 30], [90, 9]],
        },
    ]
    ranges = tmp_path / "ranges.jsonl"
    ranges.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = (trace_summary(read_trace(path)) for path in (ids, ranges))
    assert {**first, "trace": ""} == {**second, "trace": ""}
    rows[0] |= {"input_length": 4 * 10**11, "hash_ranges": [[0, 10**11]]}
    ranges.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert trace_summary(read_trace(ranges))["unique_blocks"] == 10**11


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 5)), max_size=40))
def test_earlier_sums_equal_a_double_loop(pairs):
    key, weight = (np.array(column, dtype=np.int64) for column in (zip(*pairs, strict=True) if pairs else ((), ())))
    expected = [sum(weight[j] for j in range(i) if key[j] <= key[i]) for i in range(len(pairs))]
    assert earlier_sums(key, weight).tolist() == expected
