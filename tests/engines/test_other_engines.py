"""SGLang, llama.cpp, TensorRT-LLM and no engine: printed figures of public logs, and laws all engines obey."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from kvmodel.analyses.size import model_of, with_precision
from kvmodel.engines import KINDS, Engine, Parallel
from kvmodel.engines.llamacpp import LlamaCpp
from kvmodel.engines.sglang import Sglang
from kvmodel.engines.tensorrt_llm import TensorRtLlm
from kvmodel.errors import KvmodelError, UnsupportedModelError

MODELS = ("llama-3.1-8b", "qwen3-235b-a22b", "gpt-oss-120b")
every_engine = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every_engine
@pytest.mark.parametrize("name", MODELS)
def test_pools_multiply_up(kind: type, name: str) -> None:
    llm, engine = model_of(name), kind()
    pool = engine.pool(llm, 40e9, Parallel(2), 32_768)
    assert pool.page_bytes * pool.blocks <= 40e9 * 2 * (1 + 1e-9)
    assert pool.tokens > 0 and pool.concurrency_at_max_model_len > 0 and 0 <= pool.wasted_fraction <= 1
    assert engine.pool(llm, 80e9, Parallel(2), 32_768).tokens >= pool.tokens


@every_engine
@pytest.mark.parametrize("name", [*MODELS, "qwen3-next-80b-a3b"])
def test_stored_sequences_hold_what_the_model_needs(kind: type, name: str) -> None:
    llm, engine = model_of(name), kind()
    if kind is TensorRtLlm and name == "qwen3-next-80b-a3b":
        with pytest.raises(UnsupportedModelError, match="gated_delta_net"):
            engine.stored_sequence_bytes(llm, 100, 1)
        return
    tokens, ranks = np.array([0, 1, 100, 50_000]), np.array([[1], [2]])
    stored = engine.stored_sequence_bytes(llm, tokens, ranks)
    assert stored.shape == (2, 4) and (stored[:, 0] == 0).all() and (np.diff(stored, axis=1) >= 0).all()
    assert (stored >= llm.sequence_bytes(tokens) * (1 - 1e-9)).all()
    assert stored[1, 3] == engine.stored_sequence_bytes(llm, 50_000, 2)
    assert engine.reuse_granularity_tokens(llm, ranks).shape == (2, 1)


@every_engine
def test_round_trip_through_the_union(kind: type) -> None:
    assert TypeAdapter(Engine).validate_python(kind().model_dump()) == kind()


def test_sglang_two_window_pools() -> None:
    """sglang#18039: MiMo-V2-Flash at TP4, 39 windowed layers of 2 heads, K 192 and V 128: 49,920 B per token."""
    cells = Sglang().cells(model_of("mimo-v2-flash"), 4)
    assert (cells.window, cells.full) == (39 * 2 * 320 * 2, 9 * 320 * 2)
    assert Sglang().window_tokens(375_360, 64) == 300_288


def test_sglang_sparse_rows() -> None:
    """sglang#11309: 48,072 B/token in truth, 40,016 in the budget before the fix; 576-byte rows with trtllm."""
    llm = with_precision(model_of("deepseek-v3.2"), kv_dtype="fp8")
    assert Sglang().cells(llm, 1).full == 61 * (656 + 132)
    assert Sglang(version="0.5.3").cells(llm, 1, budget=True).full == 61 * 656
    assert Sglang(attention_backend="trtllm").cells(llm, 1).full == 61 * (576 + 132)


def test_sglang_data_parallel_attention_copies_heads() -> None:
    pool = Sglang().pool(model_of("qwen3-235b-a22b"), 40e9, Parallel(8, dp_attention=8), 32_768)
    assert pool.page_bytes == 192_512


def test_sglang_state_pool_share() -> None:
    """States get 0.9 of what KV gets; one slot is spare."""
    llm = model_of("qwen3-next-80b-a3b")
    pool = Sglang().pool(llm, 19e9, Parallel(), 1000)
    assert pool.tokens == int(10e9 // 24_576)
    assert pool.concurrency_at_max_model_len == int(9e9 // llm.fixed_bytes_per_sequence()) - 1


def test_llamacpp_buffers() -> None:
    """llama.cpp#11200: 64 layers, 8 heads of 128, q8_0, 32,768 cells: 2 × 2,176 MiB."""
    llm = with_precision(model_of("qwen3-32b"), kv_dtype="q8_0")
    assert LlamaCpp().buffer_bytes(llm, 32_768) == 2 * 2176 * 2**20


def test_llamacpp_cells() -> None:
    """unsloth#7530: 1,024 cells for four slots of a context of 1,024; 1,536 for three; windows stop at their room."""
    assert LlamaCpp(slots=4).cells(1024) == 1024 and LlamaCpp(slots=3).cells(1024) == 1536
    assert LlamaCpp(slots=3, unified=True).cells(1024) == 1024
    assert LlamaCpp().window_cells(100_000, 1024) == 1536 and LlamaCpp().window_cells(300, 1024) == 512
    assert LlamaCpp(full_windows=True).window_cells(100_000, 1024) == LlamaCpp().cells(100_000)


def test_llamacpp_states_are_f32() -> None:
    """llama.cpp#5328: 23.75 MiB per sequence of Mamba-2.8B."""
    assert LlamaCpp().buffer_bytes(model_of("mamba-2.8b"), 1) == 24_903_680


def test_llamacpp_pool_fits() -> None:
    llm = model_of("gemma-3-27b")
    pool = LlamaCpp().pool(llm, 20e9, Parallel(), 32_768)
    assert LlamaCpp().buffer_bytes(llm, pool.tokens) <= 20e9 < LlamaCpp().buffer_bytes(llm, pool.tokens + 256)
    with pytest.raises(KvmodelError, match="do not hold"):
        LlamaCpp().pool(llm, 1e6, Parallel(), 32_768)


def test_tensorrt_llm_bytes_per_token_are_exact() -> None:
    """TensorRT-LLM#1400: 69,524,783,104 B for 132,608 tokens of a 7B MHA model."""
    assert TensorRtLlm().pool(model_of("llama-2-7b"), 69_524_783_104).tokens == 132_608


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TensorRtLlm, "qwen3-next-80b-a3b"),
        (Sglang, "whisper-tiny"),
        (LlamaCpp, "deepseek-v4-pro"),
        (Sglang, "deepseek-v4-pro"),
    ],
)
def test_layers_an_engine_is_not_known_to_store_are_refused(kind: type, name: str) -> None:
    with pytest.raises(UnsupportedModelError, match="not modelled"):
        kind().pool(model_of(name), 40e9, Parallel(), 4096)
