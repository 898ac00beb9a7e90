"""Layouts of stored vectors, against the layouts' own definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.errors import UnsupportedModelError
from kvmodel.formulas import kv_size


@pytest.mark.parametrize(
    ("width", "name", "expected"),
    [
        (128, "bf16", 256),
        (128, "fp8", 128),
        (128, "int8_per_token_head", 132),  # vLLM: head_dim + one f32
        (128, "nvfp4", 64 + 8),  # vLLM: head_dim/2 + head_dim/16
        (32, "q8_0", 34),
        (32, "q4_0", 18),
        (128, "q1_0", 18),  # GGML blocks; q1_0 is 1.125 bits
        (512, "fp8_block128", 528),  # 512 fp8 and four f32 scales
        (0, "q8_0", 0),
        (0, "int8_per_token_head", 0),
    ],
)
def test_vector_bytes(width: int, name: str, expected: float) -> None:
    assert kv_size.vector_bytes(width, name) == expected


def test_turboquant_slot() -> None:
    """k8v4 at head_dim 256 takes 388 B per head: 256 fp8 keys, 128 B of 4-bit values, two fp16 numbers of scale."""
    key, value = kv_size.key_value_dtypes("turboquant_k8v4")
    assert kv_size.vector_bytes(256, key) + kv_size.vector_bytes(256, value) == 388


@pytest.mark.parametrize(("heads", "ranks", "expected"), [(8, 16, 1), (8, 8, 1), (8, 2, 4), (4, 3, 2), (1, 8, 1)])
def test_heads_are_never_divided_below_one(heads: int, ranks: int, expected: int) -> None:
    assert kv_size.heads_per_rank(heads, ranks) == expected


def test_unknown_cache_type_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnsupportedModelError, match="q8_0"):
        kv_size.canonical("q8_1x")


@given(st.integers(0, 10**9), st.floats(0, 1e6), st.floats(0, 1e9), st.floats(0, 1e9))
def test_an_empty_sequence_takes_nothing_and_a_longer_one_never_less(
    n: int, growing: float, bounded: float, constant: float
) -> None:
    assert kv_size.sequence_bytes(0, growing, 0.0, constant) == 0
    shorter, longer = (kv_size.sequence_bytes(tokens, growing, bounded, constant) for tokens in (n, n + 1))
    assert shorter <= longer


def test_bounded_tokens_at_zero_and_infinity() -> None:
    np.testing.assert_array_equal(kv_size.bounded_tokens(np.array([0, 5, np.inf]), 5), [0, 5, 5])
