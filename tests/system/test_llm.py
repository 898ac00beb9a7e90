"""The model record: checked values of known models, and laws of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kvmodel.analyses.size import model_of
from kvmodel.errors import UnsupportedModelError
from kvmodel.presets import catalogue
from kvmodel.system.llm import Llm

PRESETS = catalogue.names("llms")
FULL = {"kind": "full", "layers": 2, "kv_heads": 4, "k_dim": 64, "v_dim": 64, "query_heads": 8}


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        # public figures: LMCache#715 (DeepSeek-V3), issue texts of the engines, kv-size rules collected from logs
        ("llama-3.1-8b", "bf16", 131_072),
        ("llama-3.1-70b", "bf16", 327_680),
        ("qwen3-32b", "bf16", 262_144),
        ("qwen3-235b-a22b", "bf16", 192_512),
        ("deepseek-v3", "bf16", 70_272),
        ("kimi-k2", "bf16", 70_272),
        ("gpt-oss-120b", "bf16", 36_864),
        ("gemma-3-27b", "bf16", 81_920),
        ("qwen3-next-80b-a3b", "bf16", 24_576),
        ("deepseek-v3.2", "bf16", 85_888),
        ("deepseek-v3.2", "fp8", 48_068),
        ("deepseek-v4-pro", "bf16", 9_848),
        ("mistral-7b-v0.1", "bf16", 0),
        ("glm-4.5-air", "bf16", 188_416),
    ],
)
def test_growing_bytes_per_token(name: str, dtype: str, expected: int) -> None:
    fields = {**catalogue.load("llms", name).fields, "kv_dtype": dtype}
    assert Llm(**fields).growing_bytes_per_token == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # gpt-oss: 18 layers x 128 tokens x 8 heads x 128 elements x 2 B
        ("gpt-oss-120b", 18 * 128 * 8 * 128 * 2),
        ("gemma-3-27b", 52 * 1024 * 16 * 256 * 2),
        # Qwen3.6-27B: 48 layers of 48 x 128 x 128 f32 (144 MiB) and 10,240 x 3 bf16 convolution inputs: 146.8 MiB
        ("qwen3.6-27b-nvfp4", 48 * (48 * 128 * 128 * 4 + 10_240 * 3 * 2)),
        # Mamba-2.8B in 16 bit: half of the 23.75 MiB llama.cpp keeps in f32 (ggml-org/llama.cpp#5328)
        ("mamba-2.8b", 23.75 * 2**20 / 2),
    ],
)
def test_fixed_bytes_per_sequence(name: str, expected: float) -> None:
    assert model_of(name).fixed_bytes_per_sequence() == expected


def test_replication() -> None:
    """Four KV heads at TP8 move twice the logical bytes; a latent is copied on every rank, eight heads are not."""
    assert model_of("qwen3-235b-a22b").replication(8) == 2
    assert model_of("deepseek-v3").replication(8) == 8
    np.testing.assert_array_equal(model_of("llama-3.1-70b").replication(np.array([1, 4, 8, 16])), [1, 1, 1, 2])


def test_attention_flops_of_a_dense_model() -> None:
    """Llama-3.1-70B: 80 layers, 64 heads of 128: 4 n d per token and layer over n/2 pairs is 80·64·256·n²."""
    assert model_of("llama-3.1-70b").attention_flops_per_token_squared == 80 * 64 * 256
    assert model_of("llama-3.1-70b").window_flops_per_token == 0


def test_linear_flops_are_two_per_active_parameter() -> None:
    llm = Llm(attention=[FULL], parameters=100.0, active_parameters=30.0)
    assert llm.flops_per_token == 60.0
    assert Llm(attention=[FULL], parameters=100.0).flops_per_token == 200.0
    with pytest.raises(UnsupportedModelError, match="parameters"):
        _ = Llm(attention=[FULL]).flops_per_token


def test_weight_bytes_given_derived_or_refused() -> None:
    assert Llm(attention=[FULL], weight_bytes="10 GB").weight_bytes == 10e9
    assert Llm(attention=[FULL], parameters=1e9, weight_dtype="fp8").weight_bytes == 1e9
    with pytest.raises(UnsupportedModelError, match="weight_bytes"):
        _ = Llm(attention=[FULL], parameters=1e9, weight_dtype="").weight_bytes


@pytest.mark.parametrize(
    "field",
    [
        {"kv_dtype": "bf17"},
        {"parameters": 1.0, "active_parameters": 2.0},
        {"attention": []},
        {"unknown": 1},
        {"parameters": -1},
    ],
)
def test_bad_records_are_refused(field: dict) -> None:
    with pytest.raises(ValidationError):
        Llm(**{"attention": [FULL], **field})


@pytest.mark.parametrize("name", PRESETS)
def test_presets_obey_the_laws(name: str) -> None:
    llm = model_of(name)
    tokens, ranks = np.array([0, 1, 127, 128, 4096, 10**6]), np.array([[1], [2], [8], [64]])
    sizes = llm.rank_sequence_bytes(tokens, ranks)
    assert (np.diff(sizes, axis=1) >= 0).all() and (sizes[:, 0] == 0).all()
    assert (ranks * sizes >= llm.sequence_bytes(tokens) * (1 - 1e-12)).all()
    far = llm.sequence_bytes(2 * 10**6) - llm.sequence_bytes(10**6)
    np.testing.assert_allclose(far, llm.growing_bytes_per_token * 1e6)
    np.testing.assert_allclose(
        llm.sequence_bytes(10**6), llm.growing_bytes_per_token * 1e6 + llm.fixed_bytes_per_sequence()
    )


@given(tokens=st.integers(0, 10**6), tp=st.integers(1, 64))
def test_arrays_equal_scalars(tokens: int, tp: int) -> None:
    llm = model_of("gemma-3-27b")
    grid = llm.rank_sequence_bytes(np.array([tokens, 5]), np.array([[tp], [1]]))
    assert grid[0, 0] == llm.rank_sequence_bytes(tokens, tp)
    assert grid[1, 1] == llm.sequence_bytes(5)
