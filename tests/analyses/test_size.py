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

KEYS = {"model", "attention", "growing_bytes_per_token", "fixed_bytes_per_sequence", "sequence_bytes", "per_rank"}
ENGINE_KEYS = {"kind", "version", "block_tokens", "page_bytes", "blocks", "tokens", "concurrency_at_max_model_len",
               "wasted_fraction", "reuse_granularity_tokens"}


def test_fixed_keys() -> None:
    answer = kvmodel.kv_size("llama-3.1-70b", 1000)
    assert set(answer) == KEYS and answer["sequence_bytes"] == 327_680_000
    assert set(answer["per_rank"]) == {"growing_bytes_per_token", "fixed_bytes_per_sequence", "replication"}
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


@pytest.mark.parametrize(("settings", "growing", "replication"), [
    ({"tp": 8}, 70_272, 8), ({"tp": 8, "dcp": 8}, 70_272 / 8, 1), ({"tp": 8, "dp_attention": 8}, 70_272, 1),
    ({"kv_dtype": "fp8"}, 35_136, 1),
])
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
    answers = [kv_size(model)["growing_bytes_per_token"]
               for model in (config, tmp_path, str(tmp_path), str(tmp_path / "config.json"), model_of(config))]
    assert set(answers) == {4 * 1024 * 2 * 2}


@pytest.mark.parametrize(("settings", "words"), [
    ({"model": "llama-3.1-7b"}, "did you mean 'llama-3.1-"), ({"model": "./none.json"}, "no such file"),
    ({"kv_dtype": "fp7"}, "fp7"), ({"engine": "vlm"}, "did you mean 'vllm'"), ({"tp": 0}, "tp must be"),
    ({"tp": 4, "dcp": 3}, "dcp 3 must divide"), ({"tp": 4, "dp_attention": 3}, "dp_attention 3 must divide"),
    ({"tokens": -1}, "not negative"), ({"tokens": float("nan")}, "finite"),
    ({"engine": "llamacpp", "max_batched_tokens": 1}, "max_batched_tokens: not a setting of llamacpp"),
    ({"block_tokens": 16}, "no engine is named"), ({"engine": "vllm", "block_tokens": 0}, "block_tokens"),
    ({"engine": "vllm", "gpu": "h100-sxm", "model": "llama-3.1-405b"}, "does not fit"),
    ({"engine": "vllm", "memory": -1.0}, "more than 0"),
])
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
    status = run(["size", "gpt-oss-120b", "--tokens", "1k", "--tokens", "131072", "--tp", "8", "--engine", "vllm",
                  "--memory", "40 GiB", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert status == 0 and answer["sequence_bytes"]["1000"] == 36_864_000 + 18 * 128 * 2048
    assert answer["engine"]["blocks"] == 40 * 2**30 // (18 * 16 * 256)
    assert run(["size", "gpt-oss-120b", "--tp", "8", "--engine", "vllm", "--gpu", "h100-sxm"]) == 0
    assert "36,864 B/token" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["size", "nothing-like-it"], ["size", "llama-3.1-8b", "--tokens", "20 GB"],
                                   ["size", "llama-3.1-8b", "--memory", "2G", "--engine", "vllm"],
                                   ["size", "llama-3.1-8b", "--memory", "2 GB", "--gpu", "h100-sxm"],
                                   ["evaluate", "no-such-file.json"]])
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
    assert sum(result.verdict == REPRODUCED for result in results) >= 0.75 * len(results)
    assert sum(row["cases"] for row in summary(results)) == len(results)


CASE = {"id": "a", "engine": "vllm", "engine_version": "0.11.0", "model": "Qwen/Qwen3-8B", "kv_dtype": "bf16", "tp": 1,
        "block_size": 16, "available_kv_bytes": 147_456 * 16_000, "tokens": 16_000}


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, "reproduced"), ({"tokens": 16_016}, "reproduced"), ({"tokens": 17_000}, "mismatch"),
    ({"tp": 2, "tokens": 31_700}, "explained mismatch"), ({"model": "nobody/knows"}, "not modelled"),
    ({"kind": "unheard_of"}, "not modelled"), ({"kv_dtype": "fp3"}, "not modelled"),
    ({"kind": "required_for_max_len", "max_model_len": 16_000}, "reproduced"),
    ({"kind": "estimated_max_len"}, "reproduced"), ({"engine": "tensorrt-llm"}, "reproduced"),
    ({"tokens": 17_000, "approximate": True}, "explained mismatch"), ({"available_kv_bytes": None}, "not modelled"),
    ({"model": "x", "note": "36 layers, 8 KV heads, head_dim 128"}, "reproduced"),
])
def test_verdicts(change: dict, verdict: str, tmp_path: Path) -> None:
    assert evaluate_case({**CASE, **change}, tmp_path).verdict == verdict


def test_bad_case_files_report_all_problems(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        size_cases.size_cases({"cases": [{"id": "a"}, {"id": "b", "engine": "vllm", "tp": 0}]})
    assert len(error.value.problems) == 2


def test_schema_is_the_committed_one() -> None:
    committed = Path(__file__).parents[2] / "schemas" / "kv_size_cases.schema.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == size_cases.schema()


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
