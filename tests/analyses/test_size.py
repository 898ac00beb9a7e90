"""The size question: its fixed keys, its array answers, its refusals, and the public case files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvmodel
from kvmodel.analyses import size_cases
from kvmodel.analyses.evaluate_size import MISMATCH, REPRODUCED, evaluate_case, evaluate_cases, summary
from kvmodel.analyses.size import ENGINES, engine_of, kv_size, model_of, model_weights, pool_memory
from kvmodel.cli.app import run
from kvmodel.engines import Parallel
from kvmodel.errors import KvmodelError, PresetError, StudyError, UnsupportedModelError
from kvmodel.presets import catalogue
from kvmodel.system.llm import Llm
from tests.system.test_config_json import rows

KEYS = {
    "model",
    "attention",
    "growing_bytes_per_token",
    "indexer_bytes_per_token",
    "growing_up_to_tokens",
    "bytes_per_token_below_window",
    "fixed_bytes_per_sequence",
    "sequence_bytes",
    "per_rank",
}
RANK_KEYS = {"growing_bytes_per_token", "indexer_bytes_per_token", "fixed_bytes_per_sequence", "replication"}
ENGINE_KEYS = {
    "kind",
    "version",
    "block_tokens",
    "page_bytes",
    "blocks",
    "tokens",
    "concurrency_at_max_model_len",
    "wasted_fraction",
    "reuse_granularity_tokens",
}


def test_fixed_keys() -> None:
    answer = kvmodel.kv_size("llama-3.1-70b", 1000)
    assert set(answer) == KEYS and answer["sequence_bytes"] == 327_680_000
    assert set(answer["per_rank"]) == RANK_KEYS
    with_engine = kv_size("llama-3.1-70b", 1000, engine="vllm", memory=40e9)
    assert set(with_engine) == KEYS | {"engine"} and set(with_engine["engine"]) == ENGINE_KEYS


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_engine_without_a_pool_gives_blocks_but_no_counts(engine: str) -> None:
    answer = kv_size("llama-3.1-8b", engine=engine)["engine"]
    assert answer["page_bytes"] > 0 and answer["blocks"] is None and answer["tokens"] is None


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=5))
def test_tokens_may_be_an_array(tokens: list[int]) -> None:
    whole = kv_size("gemma-3-27b", np.array(tokens))["sequence_bytes"]
    assert list(whole) == [kv_size("gemma-3-27b", n)["sequence_bytes"] for n in tokens]


def test_figures_multiply_up() -> None:
    answer = kv_size("gpt-oss-120b", 10**6, tp=16, engine="vllm", memory=40e9)
    groups = answer["attention"]
    assert sum(g["growing_bytes_per_token"] for g in groups) == answer["growing_bytes_per_token"]
    fixed = sum(g.get("bounded_bytes", 0) + g.get("state_bytes", 0) for g in groups)
    assert fixed == answer["fixed_bytes_per_sequence"]
    assert answer["sequence_bytes"] == 10**6 * answer["growing_bytes_per_token"] + answer["fixed_bytes_per_sequence"]
    rank = answer["per_rank"]
    assert 16 * rank["growing_bytes_per_token"] == rank["replication"] * answer["growing_bytes_per_token"]


def test_every_collected_file_is_exact(reference_data) -> None:
    """The README's growing bytes per token, to the byte; where its remark says "figure is all layers" (Llama 4), the
    rate before a chunk is full, because most layers there stop growing at the chunk."""
    readme = reference_data("model_configs/README.md")
    collected = rows(readme)
    assert len(collected) >= 10
    wrong, all_layers = {}, []
    for file, expected, remark in collected:
        answer = kv_size(readme.parent / file)
        counted = "growing_bytes_per_token"
        if "figure is all layers" in remark:
            all_layers.append(file)
            counted = "bytes_per_token_below_window"
            assert answer["growing_bytes_per_token"] * 4 == expected  # one layer of four is full
        if answer[counted] != expected:
            wrong[file] = (answer[counted], expected, remark)
    assert wrong == {} and all("Llama-4" in file for file in all_layers)


@given(
    name=st.sampled_from(catalogue.names("llms")),
    extra=st.integers(0, 10**7),
    below=st.floats(0, 1),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_the_figures_add_up_to_the_sequence(name: str, extra: int, below: float, dtype: str) -> None:
    """sequence_bytes = growing · min(n, growing_up_to) + indexer · n + bounded: the last is what windows hold, and past
    all of them it is fixed_bytes_per_sequence."""
    answer = kv_size(name, kv_dtype=dtype)
    windows = [group.get("window", 0) or group.get("chunk", 0) for group in answer["attention"]]
    longest = max(windows, default=0)
    limit = answer["growing_up_to_tokens"] or float("inf")
    for n in (max(longest, 1) + extra, max(1, int(below * longest))):
        rest = kv_size(name, n, kv_dtype=dtype)["sequence_bytes"] - (
            answer["growing_bytes_per_token"] * min(n, limit) + answer["indexer_bytes_per_token"] * n
        )
        if n >= longest:
            assert rest == pytest.approx(answer["fixed_bytes_per_sequence"], rel=1e-12, abs=1e-3)
        assert -1e-3 <= rest <= answer["fixed_bytes_per_sequence"] + 1e-3


@pytest.mark.parametrize(
    ("name", "growing", "indexer", "up_to", "below"),
    [
        ("deepseek-v3.2", 70_272, 61 * 256, None, 85_888),
        ("glm-5.2", 89_856, 21 * 256, None, 95_232),
        ("mistral-7b-v0.1", 131_072, 0, 4096, 131_072),
        ("phi-3-mini-4k", 393_216, 0, 2047, 393_216),
        ("llama-4-scout-17b-16e", 49_152, 0, None, 196_608),
        ("llama-3.1-8b", 131_072, 0, None, 131_072),
        ("mamba-2.8b", 0, 0, None, 0),
    ],
)
def test_what_each_token_adds(name: str, growing: int, indexer: int, up_to: int | None, below: int) -> None:
    answer = kv_size(name)
    assert (answer["growing_bytes_per_token"], answer["indexer_bytes_per_token"]) == (growing, indexer)
    assert (answer["growing_up_to_tokens"], answer["bytes_per_token_below_window"]) == (up_to, below)


def test_windows_of_several_lengths_grow_together_up_to_the_shortest() -> None:
    shape = {"kv_heads": 1, "k_dim": 64, "v_dim": 64}
    llm = Llm(
        attention=[
            {"kind": "sliding_window", "layers": 2, "window": 100, **shape},
            {"kind": "sliding_window", "layers": 1, "window": 300, **shape},
        ]
    )
    answer = kv_size(llm, [100, 200, 1000])
    assert (answer["growing_bytes_per_token"], answer["growing_up_to_tokens"]) == (3 * 256, 100)
    assert answer["fixed_bytes_per_sequence"] == 200 * 256
    assert list(answer["sequence_bytes"]) == [300 * 256, 400 * 256, 500 * 256]


def test_index_keys_are_copied_where_heads_are_divided() -> None:
    """MiniMax-M3: four KV heads at TP8 are stored twice, the index keys of 57 layers on every rank."""
    rank = kv_size("minimax-m3", tp=8)["per_rank"]
    assert (rank["growing_bytes_per_token"], rank["indexer_bytes_per_token"]) == (2 * 122_880 / 8, 57 * 256)
    assert rank["replication"] == 2


def test_the_fastest_growing_pipeline_stage() -> None:
    """Gemma-3-27B, 62 layers over four stages of 15, 16, 16, 15: full layers 5, 11, ... fall 2, 3, 2, 3 to a stage."""
    rank = kv_size("gemma-3-27b", pp=4)["per_rank"]
    assert rank["growing_bytes_per_token"] == 3 * 8192
    assert kv_size("deepseek-v3", pp=2)["per_rank"]["growing_bytes_per_token"] == 31 * 1152
    with pytest.raises(KvmodelError, match="pp 80 is more than the 61 layers"):
        kv_size("deepseek-v3", pp=80)


@pytest.mark.parametrize(
    ("settings", "growing", "replication"),
    [
        ({"tp": 8}, 70_272, 8),
        ({"tp": 8, "dcp": 8}, 70_272 / 8, 1),
        ({"tp": 8, "dp_attention": 8}, 70_272, 1),
        ({"kv_dtype": "fp8"}, 35_136, 1),
    ],
)
def test_latents_under_parallelism(settings: dict, growing: float, replication: float) -> None:
    """DeepSeek-V3: the latent is copied on every rank unless the context is spread (vllm#26877)."""
    rank = kv_size("deepseek-v3", **settings)["per_rank"]
    assert (rank["growing_bytes_per_token"], rank["replication"]) == (growing, replication)


def test_key_and_value_types_may_differ() -> None:
    answer = kv_size("llama-3.1-8b", k_dtype="q8_0", v_dtype="q4_0")
    assert answer["growing_bytes_per_token"] == 32 * 8 * 128 * (34 + 18) / 32


def test_every_way_to_name_a_model(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    answers = [
        kv_size(model)["growing_bytes_per_token"]
        for model in (config, tmp_path, str(tmp_path), str(tmp_path / "config.json"), model_of(config))
    ]
    assert set(answers) == {4 * 1024 * 2 * 2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "llama-3.1-7b"}, "did you mean 'llama-3.1-"),
        ({"model": "./none.json"}, "no such file"),
        ({"kv_dtype": "fp7"}, "fp7"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"tp": 0}, "tp must be"),
        ({"tp": 4, "dcp": 3}, "dcp 3 must divide"),
        ({"tp": 4, "dp_attention": 3}, "dp_attention 3 must divide"),
        ({"tokens": -1}, "not negative"),
        ({"tokens": float("nan")}, "finite"),
        ({"engine": "llamacpp", "max_batched_tokens": 1}, "max_batched_tokens: not a setting of llamacpp"),
        ({"block_tokens": 16}, "no engine is named"),
        ({"engine": "vllm", "block_tokens": 0}, "block_tokens"),
        ({"engine": "vllm", "gpu": "h100-sxm", "model": "llama-3.1-405b"}, "does not fit"),
        ({"engine": "vllm", "memory": -1.0}, "more than 0"),
    ],
)
def test_refusals_say_what_to_mend(settings: dict, words: str) -> None:
    with pytest.raises(KvmodelError, match=words.replace(".", r"\.")):
        kv_size(**{"model": "llama-3.1-8b", **settings})


def test_pool_of_a_gpu() -> None:
    llm = model_of("llama-3.1-70b")
    four, eight = (pool_memory(llm, "h100-sxm", 0.9, Parallel(tp)) for tp in (4, 8))
    assert eight - four == pytest.approx(float(llm.weight_bytes) / 8)


def test_weights_say_where_they_come_from() -> None:
    weights = model_weights("gpt-oss-120b")
    assert weights["parameters"] == 117e9 and weights["active_parameters"] == 5.1e9 and "preset" in weights["basis"]


def test_settings_are_passed_on() -> None:
    assert engine_of("vllm", engine_version="0.11.0", block_tokens=32).version == "0.11.0"


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = run(
        [
            "size",
            "gpt-oss-120b",
            "--tokens",
            "1k",
            "--tokens",
            "131072",
            "--tp",
            "8",
            "--engine",
            "vllm",
            "--memory",
            "40 GiB",
            "--json",
        ]
    )
    answer = json.loads(capsys.readouterr().out)
    assert status == 0 and answer["sequence_bytes"]["1000"] == 36_864_000 + 18 * 128 * 2048
    assert answer["engine"]["blocks"] == 40 * 2**30 // (18 * 16 * 256)
    assert run(["size", "gpt-oss-120b", "--tp", "8", "--engine", "vllm", "--gpu", "h100-sxm"]) == 0
    assert "36,864 B/token" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["size", "nothing-like-it"],
        ["size", "llama-3.1-8b", "--tokens", "20 GB"],
        ["size", "llama-3.1-8b", "--memory", "2G", "--engine", "vllm"],
        ["size", "llama-3.1-8b", "--memory", "2 GB", "--gpu", "h100-sxm"],
        ["evaluate", "no-such-file.json"],
    ],
)
def test_bad_command_lines_end_in_one_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


# Reproducible by the collected rules; every other case is explained or not modelled, never silently wrong.
def test_case_file(reference_data, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of all cases: reproduced, explained mismatch, not modelled (kept for the reader with -s)."""
    path = reference_data("kv_size_cases.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    results = evaluate_cases(document, path.parent / "model_configs")
    with capsys.disabled():
        print()
        for result in results:
            error = "-" if result.error is None else f"{result.error:+.3%}"
            print(f"{result.id:32} {result.kind:21} {result.verdict:19} {error:>9}  {result.reason}")
    assert [result.id for result in results if result.verdict == MISMATCH] == []
    assert all(result.reason for result in results if result.verdict != REPRODUCED)
    configs = path.parent / "model_configs"
    absent = {c["id"] for c in document["cases"] if c.get("config_file") and not (configs / c["config_file"]).exists()}
    possible = [result for result in results if result.id not in absent]
    least = 0.75 if len(possible) >= 40 else 0.5  # a share of few cases is left to chance
    assert sum(result.verdict == REPRODUCED for result in possible) >= least * len(possible)
    assert sum(row["cases"] for row in summary(results)) == len(results)


CASE = {
    "id": "a",
    "engine": "vllm",
    "engine_version": "0.11.0",
    "model": "Qwen/Qwen3-8B",
    "kv_dtype": "bf16",
    "tp": 1,
    "block_size": 16,
    "available_kv_bytes": 147_456 * 16_000,
    "tokens": 16_000,
}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "reproduced"),
        ({"tokens": 16_016}, "reproduced"),
        ({"tokens": 17_000}, "mismatch"),
        ({"tp": 2, "tokens": 31_700}, "explained mismatch"),
        ({"model": "nobody/knows"}, "not modelled"),
        ({"kind": "unheard_of"}, "not modelled"),
        ({"kv_dtype": "fp3"}, "not modelled"),
        ({"kind": "required_for_max_len", "max_model_len": 16_000}, "reproduced"),
        ({"kind": "estimated_max_len"}, "reproduced"),
        ({"engine": "tensorrt-llm"}, "reproduced"),
        ({"tokens": 17_000, "approximate": True}, "explained mismatch"),
        ({"available_kv_bytes": None}, "not modelled"),
        ({"model": "x", "note": "36 layers, 8 KV heads, head_dim 128"}, "reproduced"),
    ],
)
def test_verdicts(change: dict, verdict: str, tmp_path: Path) -> None:
    assert evaluate_case({**CASE, **change}, tmp_path).verdict == verdict


@pytest.mark.parametrize(
    "model",
    [
        "Qwen/Qwen3-8B-FP8",
        "Qwen3-8B-AWQ",
        "unsloth/Qwen3-8B-GGUF",
        "nvidia/Qwen3-8B-NVFP4",
        "Qwen3-8B (W4A16)",
        "Qwen/Qwen3-8B-Base",
    ],
)
def test_tuning_and_weight_format_do_not_change_the_geometry(model: str, tmp_path: Path) -> None:
    assert evaluate_case({**CASE, "model": model}, tmp_path).verdict == "reproduced"


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "Qwen/Qwen3-8B-Omni", "Qwen/Qwen3"])
def test_another_model_is_not_taken_for_one_we_know(model: str, tmp_path: Path) -> None:
    assert evaluate_case({**CASE, "model": model}, tmp_path).verdict == "not modelled"


def test_bad_case_files_report_all_problems(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        size_cases.size_cases({"cases": [{"id": "a"}, {"id": "b", "engine": "vllm", "tp": 0}]})
    assert len(error.value.problems) == 2


def test_evaluate_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [CASE, {**CASE, "id": "b", "tokens": 20_000}]}), encoding="utf-8")
    assert run(["evaluate", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [case["verdict"] for case in answer["cases"]] == ["reproduced", "mismatch"]
    assert run(["evaluate", str(file), "--check"]) == 3
    assert "mismatch" in capsys.readouterr().out


def test_unknown_names_keep_their_own_error_types() -> None:
    with pytest.raises(PresetError):
        kv_size("no-such-preset-at-all")
    with pytest.raises(UnsupportedModelError):
        kv_size({"model_type": "unheard-of"})
