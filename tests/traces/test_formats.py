"""Every format is known by its first line and read to the same numbers; what is wrong is said with file
and line.
"""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest

from kvmodel.traces import FORMATS, SummaryOptions, TraceError, read_trace, trace_summary
from tests.traces import trace_oracle as oracle

MOONCAKE = (
    '{"timestamp": 27482, "input_length": 6955, "output_length": 52, '
    '"hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2353, 2354]}\n'
)
BAILIAN = (
    '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 30, "output_length": 7, '
    '"type": "text", "turn": 1, "hash_ids": [1089, 1090]}\n'
    '{"chat_id": 161, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 40, "output_length": 8, '
    '"type": "text", "turn": 2, "hash_ids": [1089, 1090, 6326]}\n'
    '{"chat_id": 170, "parent_chat_id": -1, "timestamp": 62.5, "input_length": 4, "output_length": 8, '
    '"type": "text", "turn": 1, "hash_ids": [7]}\n'
)
SESSIONS = (
    '{"session": 1, "block_tokens": 64, "requests": ['
    '{"t": 0.0, "a": 0, "in": 130, "out": 9, "stop": "tool_use", "think": 0.0, "hash_ranges": [[1, 2]]}, '
    '{"t": 9.5, "a": 0, "in": 200, "out": 9, "stop": "end_turn", "think": 3.0, "hash_ranges": [[1, 3]]}]}\n'
    '{"session": 2, "block_tokens": 64, "requests": ['
    '{"t": 0.0, "a": 0, "in": 64, "out": 9, "stop": "", "hash_ranges": [[1, 1]]}]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,API log\n"
)
PLAIN = "time_s,session,input_tokens,output_tokens,hash_ids\n0.5,a,30,5,x1 x2\n1.25,a,40,5,x1 x2 x3\n"


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "requests", "blocks"),
    [
        ("mooncake", MOONCAKE, 1, 14),
        ("bailian", BAILIAN, 3, 6),
        ("sessions", SESSIONS, 3, 6),
        ("azure", AZURE, 2, 0),
        ("burstgpt", BURSTGPT, 2, 0),
        ("csv", PLAIN, 2, 5),
    ],
)
def test_formats_are_recognised(tmp_path, name, text, requests, blocks):
    assert name in [known.name for known in FORMATS]
    options = {"block_tokens": 16} if name == "csv" else {}
    trace = read_trace(write(tmp_path / "t", text), **options)
    assert (trace.format, trace.requests, int(trace.blocks.sum())) == (name, requests, blocks)
    named = read_trace(tmp_path / "t", format=name, **options)
    assert trace_summary(named) == trace_summary(trace)


def test_every_format_has_a_sample_here():
    assert {known.name for known in FORMATS} == {
        "mooncake",
        "bailian",
        "sessions",
        "azure",
        "burstgpt",
        "csv",
    }


def test_times_are_exact_microseconds(tmp_path):
    assert read_trace(write(tmp_path / "b", BAILIAN)).time_us.tolist() == [61_114_000, 62_500_000, 62_500_000]
    assert read_trace(write(tmp_path / "m", MOONCAKE)).time_us.tolist() == [27_482_000]
    assert trace_summary(read_trace(write(tmp_path / "a", AZURE)))["duration_s"] == 0.052


def test_dynamo_aliases_and_sessions(tmp_path):
    row = {"created_time": 5, "input_tokens": 600, "output_tokens": 3, "session_id": "s", "hash_ids": [1, 2]}
    text = json.dumps(row) + "\n"
    trace = read_trace(write(tmp_path / "t", text))
    assert (trace.time_us.tolist(), trace.input_tokens.tolist(), trace.session.tolist()) == (
        [5000],
        [600],
        [0],
    )


def test_chat_chains_are_sessions(tmp_path):
    assert read_trace(write(tmp_path / "t", BAILIAN)).session.tolist() == [0, 0, 1]


def test_sessions_share_no_block_and_need_a_clock_for_curves(tmp_path):
    path = write(tmp_path / "t", SESSIONS)
    alone = trace_summary(read_trace(path))
    assert alone["unique_blocks"] == 4 and alone["infinite_cache"]["block_hit_ratio"] == round(2 / 6, 6)
    assert alone["lru"] == [] and "session interval" in " ".join(alone["notes"])
    together = read_trace(path, session_interval_s=5)
    assert together.time_us.tolist() == [0, 5_000_000, 9_500_000]
    assert together.pause_us.tolist() == [0, -1, 3_000_000] and together.pause_kind.tolist() == [0, 0, 1]
    assert trace_summary(together)["lru"]


def test_packings_give_the_same_trace(tmp_path, monkeypatch):
    plain = trace_summary(read_trace(write(tmp_path / "t.jsonl", BAILIAN)))
    (tmp_path / "t.gz").write_bytes(gzip.compress(BAILIAN.encode()))
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "t.zst").write_bytes(zstandard.ZstdCompressor().compress(BAILIAN.encode()))
    for name in ("t.gz", "t.zst"):
        assert {**trace_summary(read_trace(tmp_path / name)), "trace": ""} == {**plain, "trace": ""}

    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(BAILIAN.encode())))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert {**trace_summary(read_trace("-")), "trace": ""} == {**plain, "trace": ""}


def test_zstandard_missing_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match=r"pip install 'kvmodel\[zstd\]'"):
        read_trace(tmp_path / "t.zst")


@pytest.mark.parametrize(
    ("lengths", "block_tokens"),
    [
        ([7 * n - 1 for n in (3, 5, 8)] + [7 * n for n in (3, 5, 8)] + [7 * n - 6 for n in (3, 5, 8)], 7),
        (
            [64 * n for n in (3, 5, 8)] + [64 * n + 63 for n in (3, 5, 8)] + [64 * n + 9 for n in (3, 5, 8)],
            64,
        ),
    ],
    ids=["partial last block", "full blocks"],
)
def test_block_size_follows_from_lengths(tmp_path, lengths, block_tokens):
    rows = [
        {"timestamp": 0, "input_length": length, "hash_ids": list(range(n))}
        for length, n in zip(lengths, (3, 5, 8) * 3, strict=True)
    ]
    path = write(tmp_path / "t", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_trace(path).block_tokens == block_tokens


def test_block_size_that_does_not_fit_is_noted(tmp_path):
    trace = read_trace(write(tmp_path / "t", MOONCAKE), block_tokens=16)
    assert trace.block_tokens == 16 and "do not fit" in trace.notes[0]


GOOD = '{"timestamp": 1, "input_length": 9, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"timestamp": NaN, "input_length": 9, "hash_ids": [1]}', "NaN is not a JSON number"),
        ('{"timestamp": 1e999, "input_length": 9, "hash_ids": [1]}', "finite"),
        ('{"timestamp": 0, "input_length": 9, "hash_ids": [1]}', "time goes backwards"),
        ('{"timestamp": 2, "input_length": -9, "hash_ids": [1]}', "input_length"),
        ('{"timestamp": 2, "input_length": 9.5, "hash_ids": [1]}', "whole number"),
        ('{"timestamp": 2, "input_length": true, "hash_ids": [1]}', "a number is expected"),
        ('{"timestamp": 2, "input_length": 1' + "0" * 400 + ', "hash_ids": [1]}', "input_length"),
        ('{"timestamp": 2, "input_length": 1' + "0" * 5000 + ', "hash_ids": [1]}', "not valid JSON"),
        ('{"timestamp": 1' + "0" * 400 + ', "input_length": 9, "hash_ids": [1]}', "timestamp"),
        ('{"timestamp": 2, "hash_ids": [1]}', "input_length is missing"),
        ('{"timestamp": 2, "input_length": 9, "hash_ids": [1.5]}', "block id"),
        ('{"timestamp": 2, "input_length": 9, "hash_ids": [null]}', "block id"),
        ('{"timestamp": 2, "input_length": 9, "hash_ids": "abc"}', "not a list"),
        ('{"timestamp": 2, "input_length": 9, "hash_ids": {"a": 1}}', "not a list"),
        ('{"timestamp": 2, "input_length": 9, "hash_ranges": [[1]]}', "pairs"),
        ('{"timestamp": 2, "input_length": 9, "hash_ranges": [[1, -1]]}', "count"),
        ('{"timestamp": 2, "input_length": 9, "hash_ranges": [[1, 1e3]]}', "whole numbers"),
        ('{"timestamp": 2, "input_length": 9, "hash_ranges": 5}', "pairs"),
        ('{"timestamp": 2, "input_length": 9}', "some requests list their blocks"),
        ('{"input_length": 9, "hash_ids": [1]}', "some requests have a time"),
        ('{"delay": 9, "input_length": 9, "hash_ids": [1]}', "delay"),
        ('{"timestamp": 2, "input_length": 9, "hash_ids": [1]', "not valid JSON"),
        ("[1, 2]", "JSON object is expected"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_lines_are_named_or_counted(tmp_path, line, message):
    path = write(tmp_path / "t.jsonl", GOOD + "\n" + line + "\n" + GOOD)
    with pytest.raises(TraceError, match=rf"t\.jsonl:3: .*{message}"):
        read_trace(path)
    trace = read_trace(path, skip_bad_lines=True)
    assert (trace.requests, trace.skipped_lines) == (2, 1)
    assert trace_summary(trace)["unique_blocks"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"\x00\x01\xff\xfe" * 100, "not UTF-8"),
        (b"\x00" * 100, "no known trace format"),
        (b"hello\n", "no known trace format"),
        (b"\x1f\x8b\x08 broken", "damaged gzip"),
        (gzip.compress(GOOD.encode() * 500, mtime=0)[:60], "damaged gzip"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request in it"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "t:2: 2 cells"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,2\n", "t:2: timestamp"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nnan,5,2\n", "t:2: timestamp is nan"),
    ],
)
def test_files_that_are_no_trace(tmp_path, content, message):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / "t")


def test_missing_file_and_unknown_format(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match="did you mean 'mooncake'"):
        read_trace(write(tmp_path / "t", GOOD), format="moncake")


def test_backward_time_can_be_sorted(tmp_path):
    path = oracle.write_jsonl(tmp_path / "t", [[1], [2], [1]], times=[2000, 0, 1000])
    assert read_trace(path, sort=True).range_start.tolist() == [2, 1, 1]


def test_ids_beyond_64_bits_and_texts_are_ids_like_others(tmp_path):
    requests = [[2**64 + 1, 2**64 + 2, "abc"], [2**64 + 1, "abd"], [2**62, -(2**63)], [2**62]]
    document = trace_summary(read_trace(oracle.write_jsonl(tmp_path / "t", requests)))
    assert (document["unique_blocks"], document["infinite_cache"]["hit_blocks"]) == (6, 2)


def test_requests_of_a_million_blocks(tmp_path):
    requests = [list(range(1_000_000)), list(range(0, 2000, 2)), list(range(1_000_000))]
    trace = read_trace(oracle.write_jsonl(tmp_path / "t", requests))
    document = trace_summary(trace, SummaryOptions(capacities=[999_999, 1_000_000]))
    assert document["infinite_cache"]["hit_blocks"] == 1_001_000
    assert document["lru"][1]["hit_blocks"] == 1_001_000


def test_only_empty_requests(tmp_path):
    document = trace_summary(read_trace(oracle.write_jsonl(tmp_path / "t", [[], []])))
    assert document["block_accesses"] == 0 and document["infinite_cache"]["block_hit_ratio"] is None
    json.dumps(document, allow_nan=False)
