"""vLLM layouts and pools against printed figures of public logs; each case names its log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.analyses.size import model_of, with_precision
from kvmodel.engines import Parallel
from kvmodel.engines.vllm import Vllm
from kvmodel.engines.vllm_layout import build, group_size
from kvmodel.errors import KvmodelError, UnsupportedModelError
from kvmodel.formulas.kv_size import Storage
from kvmodel.system.llm import Llm


@pytest.mark.parametrize(
    ("model", "dtype", "tp", "draft", "block"),
    [
        ("qwen3.5-27b", "bf16", 1, 0, 784),  # vllm#40691
        ("qwen3.6-27b-nvfp4", "fp8", 2, 3, 1600),  # club-3090, Qwen3.6-27B changelog
        ("qwen3.6-27b-nvfp4", "int8_per_token_head", 2, 4, 1584),  # same collection
        ("qwen3.6-27b-nvfp4", "fp8", 2, 7, 1648),  # club-3090#1107
        ("qwen3.6-35b-a3b-nvfp4", "fp8", 1, 0, 2096),
        ("qwen3.6-35b-a3b-nvfp4", "fp8", 2, 0, 2096),  # kvfit, club-3090
        ("qwen3.6-35b-a3b-nvfp4", "turboquant_k8v4", 1, 0, 2768),
        ("nemotron-nano-9b-v2", "bf16", 1, 0, 672),  # vllm#24280
        ("kimi-linear-48b-a3b", "bf16", 2, 0, 960),
    ],
)
def test_attention_blocks_raised_to_the_state_page(model: str, dtype: str, tp: int, draft: int, block: int) -> None:
    llm = with_precision(model_of(model), kv_dtype=dtype)
    engine = Vllm(version="0.20.2", speculative_tokens=draft)
    assert engine.layout(llm, Parallel(tp)).reuse_block == block
    assert engine.reuse_granularity_tokens(llm, tp) == block


def test_draft_layers_join_and_change_the_group_size() -> None:
    """Qwen3.6-27B with MTP: 16 + 1 attention layers, 48 delta-net layers in three groups of 17 with padding."""
    llm = with_precision(model_of("qwen3.6-27b-nvfp4"), kv_dtype="fp8")
    layout = Vllm(speculative_tokens=3).layout(llm, Parallel(2))
    assert sorted(len(g.positions) for g in layout.groups) == [16, 16, 16, 17]
    assert layout.block_bytes == 17 * 1600 * 1024


def test_pool_of_a_hybrid_to_the_token() -> None:
    """club-3090: 565 blocks / (164 + 3·4) × 262,144 = 841,541 tokens, printed."""
    llm = with_precision(model_of("qwen3.6-27b-nvfp4"), kv_dtype="fp8")
    pool = Vllm(version="0.25.1", speculative_tokens=3).pool(llm, 15_762_529_976, Parallel(2), 262_144)
    assert (pool.blocks, pool.tokens) == (565, 841_541)
    assert round(pool.concurrency_at_max_model_len, 2) == 3.21


def test_the_printed_count_changed_meaning() -> None:
    """vllm#43308: the same pool of Gemma-4-31B prints about 55k tokens in 0.20 and ten times that in 0.21."""
    llm = model_of("gemma-4-31b-it-nvfp4")
    old = Vllm(version="0.20.0").pool(llm, 50 * 2**30, Parallel(), 262_144)
    new = Vllm(version="0.21.0").pool(llm, 50 * 2**30, Parallel(), 262_144)
    assert old.tokens == 54_608 and new.tokens > 8 * old.tokens and old.blocks == new.blocks


def test_compressed_attention_requirement() -> None:
    """vllm#44376: 6.66 GiB for one request of 30,000 tokens of DeepSeek-V4-Flash at 16,384 batch tokens."""
    llm = with_precision(model_of("deepseek-v4-flash"), kv_dtype="fp8")
    needed = Vllm(version="0.22", max_batched_tokens=16_384).required_bytes(llm, 30_000, Parallel(2))
    assert needed == pytest.approx(7_151_120_548, abs=5_368_709)


def test_windows_dropped_from_the_rate_are_in_the_log() -> None:
    """hf-mem#60: 36,864 B/token grow in gpt-oss-120b, the log of an older version shows 73,728."""
    llm = model_of("gpt-oss-120b")
    pool = Vllm(version="0.11.0").pool(llm, 40e9, Parallel(), 131_072)
    assert 40e9 / pool.tokens == pytest.approx(73_728, rel=1e-3)


def test_hybrid_manager_off_keeps_windows_in_full() -> None:
    llm = model_of("gpt-oss-120b")
    pool = Vllm(version="0.20.2", hybrid_manager=False).pool(llm, 40e9, Parallel(), 131_072)
    assert pool.page_bytes == 36 * 16 * 8 * 128 * 2 and pool.tokens == pool.blocks * 16


def test_indexer_is_stored_in_the_fp8_layout() -> None:
    """lmcache#3339: index tensors of 132 B per token beside latents of 656 B, blocks of 64."""
    llm = with_precision(model_of("glm-5"), kv_dtype="fp8")
    layout = Vllm(speculative_tokens=1).layout(llm, Parallel(8))
    assert layout.block_bytes == 79 * 64 * (656 + 132) and layout.smallest_block == 64


def test_decode_context_parallelism_multiplies_tokens() -> None:
    llm = model_of("deepseek-v3")
    one, eight = (Vllm(version="0.20.0").pool(llm, 40e9, Parallel(8, dcp=dcp), 131_072) for dcp in (1, 8))
    assert eight.tokens == 8 * one.tokens and eight.blocks == one.blocks
    with pytest.raises(UnsupportedModelError, match="windowed"):
        Vllm().pool(model_of("gpt-oss-120b"), 40e9, Parallel(8, dcp=8), 131_072)


def test_pipeline_stages_share_layers_but_the_check_does_not() -> None:
    """vllm#34076: the requirement is over all 48 layers although each stage holds part of them."""
    llm = model_of("qwen3-30b-a3b")
    engine = Vllm(version="0.15.2")
    assert engine.required_bytes(llm, 262_144, Parallel(pp=2)) == 24 * 2**30
    assert engine.pool(llm, 40e9, Parallel(pp=2), 262_144).page_bytes == 24 * 16 * 2048


@pytest.mark.parametrize(
    ("counts", "size"),
    [([10, 50], 10), ([12, 13], 13), ([16, 48], 16), ([17, 48], 17), ([7, 20], 7), ([10, 15], 10), ([8], 8)],
)
def test_group_size(counts: list[int], size: int) -> None:
    assert group_size(counts) == size


def test_pages_that_do_not_divide() -> None:
    stored = [Storage("tokens", 10, 4128), Storage("window", 50, 8320, 1024)]
    with pytest.raises(UnsupportedModelError, match="do not divide"):
        build(stored, 16, 16, 60, pads=False)
    layout = build(stored, 16, 16, 60)
    assert layout.block_bytes == 10 * 16 * 8320 and {g.block for g in layout.groups} == {16, 32}


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("0.20.2", "0.20.2"),
        ("0.40.1", "0.40.1 (rules of vllm 0.33.0)"),
        ("0.5", "0.5 (rules of vllm 0.6.0)"),
        ("nightly", "nightly"),
        ("0.10.2-0.11 (V1)", "0.10.2-0.11 (V1)"),
    ],
)
def test_versions_outside_the_known_range_say_so(version: str, shown: str) -> None:
    assert Vllm(version=version).pool(model_of("llama-3.1-8b"), 40e9).rules == shown


def test_heads_that_cannot_be_spread_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="10 KV heads cannot be spread over 4"):
        Vllm().pool(model_of("phi-4"), 40e9, Parallel(4))


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pool_needs_a_size(memory: float) -> None:
    with pytest.raises(KvmodelError, match="must be more than 0"):
        Vllm().pool(model_of("llama-3.1-8b"), memory)


def test_more_requests_than_states_is_refused() -> None:
    with pytest.raises(KvmodelError, match="max_seqs 5000 exceeds the"):
        Vllm(max_seqs=5000).pool(model_of("qwen3-next-80b-a3b"), 10e9, Parallel(), 32_768)


@given(
    memory=st.floats(1e9, 1e12),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    name=st.sampled_from(
        [
            "llama-3.1-70b",
            "gpt-oss-120b",
            "gemma-3-27b",
            "qwen3-next-80b-a3b",
            "deepseek-v3.2",
            "kimi-linear-48b-a3b",
            "deepseek-v4-pro",
            "llama-4-scout-17b-16e",
            "whisper-tiny",
        ]
    ),
    length=st.integers(100, 131_072),
)
def test_laws_of_a_pool(memory: float, tp: int, name: str, length: int) -> None:
    llm, engine = model_of(name), Vllm()
    if name == "whisper-tiny" or (name == "llama-4-scout-17b-16e" and tp > 8):
        tp = 1
    pool = engine.pool(llm, memory, Parallel(tp), length)
    assert pool.page_bytes * pool.blocks <= memory < pool.page_bytes * (pool.blocks + 1)
    assert 0 <= pool.wasted_fraction <= 1
    assert engine.pool(llm, 2 * memory, Parallel(tp), length).tokens >= pool.tokens
    needed = float(engine.blocks_for(engine.layout(llm, Parallel(tp), length), length))
    assert pool.concurrency_at_max_model_len == pytest.approx(pool.blocks / needed)
    longest = engine.longest_request(llm, memory, Parallel(tp), length)
    assert longest == length or engine.required_bytes(llm, longest + 1, Parallel(tp)) > memory


@given(tokens=st.integers(0, 200_000))
def test_stored_sequences(tokens: int) -> None:
    engine = Vllm()
    for name in ("llama-3.1-70b", "gpt-oss-120b", "qwen3-next-80b-a3b", "deepseek-v3"):
        llm = model_of(name)
        ranks = np.array([1, 2, 8])
        stored = engine.stored_sequence_bytes(llm, tokens, ranks)
        assert (stored >= ranks * llm.rank_sequence_bytes(tokens, ranks) * (1 - 1e-12)).all()
        assert stored[1] == engine.stored_sequence_bytes(llm, tokens, 2)


def test_state_only_models_hold_sequences() -> None:
    pool = Vllm().pool(model_of("mamba-2.8b"), 12_451_840 * 10.5, Parallel(), 2048)
    assert pool.blocks == 10 and pool.concurrency_at_max_model_len == 10


def test_a_custom_model_of_unequal_heads_shares_one_table() -> None:
    """Layers of the same kind and different widths (NAS models) are one group; a block is their sum."""
    shapes = [{"kind": "full", "layers": n, "kv_heads": h, "k_dim": 64, "v_dim": 64} for n, h in ((3, 8), (5, 2))]
    layout = Vllm().layout(Llm(attention=shapes, max_context=4096))
    assert len(layout.groups) == 1 and layout.block_bytes == (3 * 8 + 5 * 2) * 16 * 256
