"""Every kind of bad input: exit status 2, one message, all problems together, no traceback, nothing written."""

from __future__ import annotations

import itertools
import os
import re

import pytest

from kvmodel.cli.app import run
from tests.studies import STUDY

# name -> (text replaced, by what, words that must be in the message)
BROKEN = {
    "unknown key": ("  prefill:", "  reserv: 4 GB\n  prefill:", ["deployment.reserv", "did you mean 'reserve'"]),
    "unknown key at the top": ("prices: {preset", "price: {preset", ["price", "did you mean 'prices'"]),
    "unknown key in a tier": (
        "capacity: 256 GiB",
        "capacty: 256 GiB",
        ["tiers.dram.capacty", "did you mean 'capacity'"],
    ),
    "wrong dimension": (
        "capacity: 256 GiB",
        "capacity: 256 GiB/s",
        ["tiers.dram.capacity", "a size in bytes", "64 GiB"],
    ),
    "no unit after a multiple": ("capacity: 256 GiB", "capacity: 2G", ["GB (powers of 1000)", "GiB (powers of 1024)"]),
    "negative": ("arrivals: 0.2 /s", "arrivals: -0.2 /s", ["workload.chat.arrivals", "more than 0"]),
    "absurd": ("capacity: 256 GiB", "capacity: 1e30 B", ["tiers.dram.capacity", "at most"]),
    "a share above 1": ("mfu: 0.5", "mfu: 1.5", ["deployment.prefill.mfu", "at most 1"]),
    "duplicate key": (
        "tensor_parallel: 1",
        "tensor_parallel: 1\n  tensor_parallel: 2",
        ["tensor_parallel", "duplicate"],
    ),
    "NO for a number": ("tensor_parallel: 1", "tensor_parallel: NO", ["deployment.tensor_parallel", "plain number"]),
    "base sixty": ("tensor_parallel: 1", "tensor_parallel: 1:30", ["deployment.tensor_parallel"]),
    "unknown preset": ("preset: ddr5-8ch", "preset: ddr5-8chx", ["ddr5-8chx", "did you mean 'ddr5-8ch'"]),
    "unknown kind": ("kind: dram, preset: ddr5-8ch", "kind: drum, preset: ddr5-8ch", ["drum", "dram"]),
    "tiers out of order": ("  hbm:  {kind: hbm}\n", "", ["first tier must be of kind hbm"]),
    "two shared prefixes": (
        "slo:",
        "  more: {kind: shared_prefix, tokens: 1k tokens}\nslo:",
        ["several shared prefixes"],
    ),
    "prefix of nobody": ("variants: 20,", "variants: 20, used_by: [chta],", ["used_by", "chta"]),
    "under a misspelt prefix": (
        "slo:",
        "  tools: {kind: shared_prefix, tokens: 1k tokens, under: sistem}\nslo:",
        ["1 problem", "workload.tools.under: 'sistem'", "did you mean 'system'"],
    ),
    "under sessions": (
        "slo:",
        "  tools: {kind: shared_prefix, tokens: 1k tokens, under: chat}\nslo:",
        ["1 problem", "workload.tools.under: 'chat' is not a population of kind shared_prefix", "there are system"],
    ),
    "under itself": ("variants: 20,", "variants: 20, under: system,", ["1 problem", "system under system"]),
    "under each other": (
        "  system: {",
        "  tools: {kind: shared_prefix, tokens: 1k tokens, under: system}\n  system: {under: tools, ",
        ["1 problem", "lies under itself (tools under system under tools)"],
    ),
    "two last prefixes": (
        "slo:",
        "".join(f"  {name}: {{kind: shared_prefix, tokens: 1, under: system}}\n" for name in "ab") + "slo:",
        ["1 problem", "chat has several shared prefixes (a, b)", "used_by"],
    ),
    "pinned without what it lies under": (
        "slo:",
        "  tools: {kind: shared_prefix, tokens: 1k tokens, under: system}\npolicy: {pinned: [tools]}\nslo:",
        ["1 problem", "policy.pinned: 'tools'", "pin 'system' too"],
    ),
    "two percentiles": ("ttft: {p95: 2 s}", "ttft: {p95: 2 s, p99: 3 s}", ["slo.ttft", "exactly one"]),
    "half a law": (
        "{lognormal: {median: 300 tokens, p90: 2k tokens}}",
        "{lognormal: {median: 300 tokens}}",
        ["new_tokens", "p90, sigma or cv"],
    ),
    "tabs": ("  gpu:", "\tgpu:", ["spaces, not tabs"]),
    "unclosed": ("slo: {", "slo: {{", None),
    "GPUs do not divide": ("tensor_parallel: 1", "tensor_parallel: 4", ["whole multiple of tensor_parallel"]),
    "missing limit": ("slo: {ttft: {p95: 2 s}, tpot: {p95: 50 ms}}\n", "slo: {tpot: {p95: 50 ms}}\n", ["slo", "ttft"]),
    "scientific prefill both ways": ("mfu: 0.5", "mfu: 0.5, seconds_per_token: 1 us/token", ["either mfu or"]),
    "swept path unknown": ("slo:", "sweep: {tiers.dram.capacty: [1 TiB, 2 TiB]}\nslo:", ["sweep", "capacity"]),
    "swept unit wrong": ("slo:", "sweep: {tiers.dram.capacity: [1 s, 2 s]}\nslo:", ["sweep", "a size in bytes"]),
    "uncertain law unknown": (
        "slo:",
        "uncertain: {prices.dram: {lognormall: {median: 1 USD/GB}}}\nslo:",
        ["uncertain"],
    ),
    "target of nothing": ("slo:", "targets: {endurance.lifetme: '>= 5 yr'}\nslo:", ["lifetme", "endurance.lifetime"]),
    "target without sign": ("slo:", "targets: {endurance.lifetime: 5 yr}\nslo:", ["targets", ">= value"]),
    "target in another unit": ("slo:", "targets: {endurance.lifetime: '>= 5 GB'}\nslo:", ["a time"]),
}


def attempt(capsys, *arguments: str) -> str:
    status = run(arguments)
    captured = capsys.readouterr()
    assert status == 2, captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_study(name, tmp_path, capsys):
    old, new, words = BROKEN[name]
    assert old in STUDY
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace(old, new, 1), encoding="utf-8")
    message = attempt(capsys, "plan", str(path), "--json", "-o", str(tmp_path / "out.json"))
    assert "study.yaml" in message
    for word in words or []:
        assert word in message
    assert re.search(r"study\.yaml:\d+: ", message), "a problem names its line"
    assert not (tmp_path / "out.json").exists()


def test_all_problems_at_once(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    text = STUDY.replace("capacity: 256 GiB", "capacity: 2G").replace("arrivals: 0.2 /s", "arrivals: -1 /s")
    path.write_text(text.replace("preset: llama-3.1-8b", "preset: lama-3.1-8b"), encoding="utf-8")
    message = attempt(capsys, "validate", str(path))
    assert message.startswith(f"error: {path}: 3 problems")
    lines = [int(number) for number in re.findall(r"study\.yaml:(\d+):", message)]
    assert len(lines) == 3 and len(set(lines)) == 3


@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "binary", "large", "aliases", "list"])
def test_not_a_study(kind, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.write_text("", encoding="utf-8")
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 4)
    elif kind == "large":
        with path.open("wb") as file:  # a sparse file of 100 MB
            file.truncate(100 * 2**20)
    elif kind == "aliases":
        names = "abcdefghi"
        lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
        lines += [f"{n}: &{n} [{', '.join(['*' + p] * 9)}]" for p, n in itertools.pairwise(names)]
        path.write_text("\n".join(lines), encoding="utf-8")
    elif kind == "list":
        path.write_text("- 1\n- 2\n", encoding="utf-8")
    message = attempt(capsys, "validate", str(path))
    assert "study.yaml" in message and len(message.splitlines()) <= 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "tiers.dram.capacty=1 TiB"], ["tiers.dram.capacty", "did you mean"]),
        (["--set", "tiers.drm.capacity=1 TiB"], ["tiers.drm", "dram"]),
        (["--set", "nonsense"], ["path=value"]),
        (["--set", "tiers.dram.capacity=2 kg"], ["tiers.dram.capacity", "kg"]),
        (["--scenario", "nope"], ["nope"]),
        (["--set", "prices={}"], ["prices.gpu"]),
        (["--set", "model.kv_dtype=fp7"], ["model.kv_dtype", "fp7"]),
        (["--set", "deployment.gpu.flops={int4: 1 TFLOP/s}", "--set", "deployment.gpu.preset=null"], []),
    ],
)
def test_bad_options(arguments, words, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    message = attempt(capsys, "plan", str(path), *arguments)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plna"], ["plan"]),
        (["plan"], ["STUDY"]),
        (["plan", "x.yaml", "--jsn"], ["--json"]),
        (["presets", "show", "h100-sxn"], ["h100-sxm"]),
        (["presets", "list", "gpu"], ["gpus"]),
        (["schema", "studdy"], ["study"]),
    ],
)
def test_bad_words(arguments, words, capsys):
    message = attempt(capsys, *arguments)
    for word in words:
        assert word.lower() in message.lower()


def test_output_that_cannot_be_written(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    assert "no directory" in attempt(capsys, "plan", str(path), "-o", str(tmp_path / "nowhere" / "out.txt"))
    assert "is a directory" in attempt(capsys, "plan", str(path), "-o", str(tmp_path))
    assert "must end in .html" in attempt(capsys, "plan", str(path), "--report", str(tmp_path / "page.pdf"))


def test_an_existing_starter_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text("mine", encoding="utf-8")
    assert "exists already" in attempt(capsys, "new", str(path))
    assert path.read_text(encoding="utf-8") == "mine"
    assert os.listdir(tmp_path) == ["study.yaml"]
