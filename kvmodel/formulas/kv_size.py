"""How many bytes does the KV cache of a sequence take?

Every layer stores one row per token: a key and a value vector per KV head, or one latent vector. A vector
takes its elements' bits plus the bytes of its quantisation scales. Tensor parallelism divides heads, never
below one per rank. Everything here is exact; validity is a matter of knowing the layer (kvmodel.attention),
not of a range.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kvmodel.errors import UnsupportedModelError, nearest

__all__ = [
    "ENCODINGS",
    "Encoding",
    "Precision",
    "Storage",
    "bounded_tokens",
    "canonical",
    "element_bytes",
    "encoding",
    "heads_per_rank",
    "key_value_dtypes",
    "sequence_bytes",
    "vector_bytes",
]


class Encoding(NamedTuple):
    """How a vector of numbers is stored: bits of an element, and scale bytes for every `group` elements.

    group = inf: one scale per vector (per token and head). A per-tensor scale costs nothing per token:
    scale_bytes 0.
    """

    bits: float
    scale_bytes: float = 0.0
    group: float = math.inf


# Sources: kv sizes printed by the engines; GGML block layouts; vLLM per-token-head and nvfp4 cache layouts.
ENCODINGS: dict[str, Encoding] = {
    "f32": Encoding(32),
    "bf16": Encoding(16),
    "fp16": Encoding(16),
    "fp8": Encoding(8),
    "int8": Encoding(8),
    "fp8_per_tensor": Encoding(8),
    "fp8_per_token_head": Encoding(8, 4),
    "int8_per_token_head": Encoding(8, 4),
    "int4_per_token_head": Encoding(4, 4),
    "fp8_block128": Encoding(8, 4, 128),
    "nvfp4": Encoding(4, 1, 16),
    "fp4": Encoding(4, 1, 16),
    "mxfp4": Encoding(4, 1, 32),
    "int4_group32": Encoding(4, 2, 32),
    "q8_0": Encoding(8, 2, 32),
    "q5_0": Encoding(5, 2, 32),
    "q5_1": Encoding(5, 4, 32),
    "q4_0": Encoding(4, 2, 32),
    "q4_1": Encoding(4, 4, 32),
    "iq4_nl": Encoding(4, 2, 32),
    "q6_0": Encoding(6, 2, 32),
    "q1_0": Encoding(1, 2, 128),
    "turboquant_v4": Encoding(4, 4),
    "turboquant_v3": Encoding(3, 4),
    "turboquant_k4": Encoding(4, 2),
    "turboquant_k3": Encoding(3, 2),
}
_ALIASES = {
    "f16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp32": "f32",
    "float32": "f32",
    "float": "f32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_e4m3fn": "fp8",
    "float8_e4m3fn": "fp8",
    "int8_per_tensor": "int8",
    "fp8_ds_mla": "fp8",
    "fp4_e2m1": "fp4",
}
_PAIRS = {  # names of one dtype that mean a different layout for K and for V
    "turboquant_k8v4": ("fp8_per_tensor", "turboquant_v4"),
    "turboquant_4bit_nc": ("turboquant_k4", "turboquant_v4"),
    "turboquant_k3v4_nc": ("turboquant_k3", "turboquant_v4"),
    "turboquant_3bit_nc": ("turboquant_k3", "turboquant_v3"),
}


class Precision(NamedTuple):
    """Names of encodings: keys, values, recurrent state, convolution state, sparse-attention index keys."""

    key: str = "bf16"
    value: str = "bf16"
    state: str = "bf16"
    convolution: str = "bf16"
    index: str = "bf16"


class Storage(NamedTuple):
    """What one kind of layer stores on one rank, in terms an allocator understands."""

    role: str  # "tokens" (every token), "window", "chunk", "encoder" (all bounded by limit), "state" (constant)
    layers: int
    row_bytes: float  # of one token in one layer; of the whole state of one layer for role "state"  [B]
    limit: int = 0  # window, chunk or encoder length  [tokens]
    latent: bool = False  # the latent layout, which kernels read in larger blocks
    block: int = 0  # tokens of a block where the layout itself fixes them; 0: the engine's choice
    page_multiple: int = 0  # pages are rounded up to this many bytes; 0: not rounded
    positions: tuple[int, ...] = ()


def canonical(name: str) -> str:
    """Name of the encoding under its one spelling; an unknown name is refused with the nearest known one."""
    name = str(name).removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in ENCODINGS and name not in _PAIRS:
        known = [*ENCODINGS, *_ALIASES, *_PAIRS]
        raise UnsupportedModelError(f"no byte layout is known for the cache type {name!r}{nearest(name, known)}")
    return name


def encoding(name: str) -> Encoding:
    """Encoding of a name as canonical() returns it."""
    return ENCODINGS[name]


def key_value_dtypes(name: str) -> tuple[str, str]:
    """(key, value) encoding names of one cache type; they differ only for layouts that are asymmetric by design."""
    name = canonical(name)
    return _PAIRS.get(name, (name, name))


def element_bytes(name: str) -> float:
    """Mean bytes of an element in a long vector:  bits/8 + scale_bytes/group.  [B]"""
    bits, scale, group = ENCODINGS[name]
    return bits / 8 + scale / group


def vector_bytes(width: Any, name: str) -> Any:
    """Bytes of one stored vector:  width · bits/8 + scale_bytes · ⌈width / group⌉.

    width  elements of the vector [elements]; 0 gives 0
    name   encoding
    Source: definition of each layout; e.g. q8_0 is 34 B per 32 elements, nvfp4 is width/2 + width/16.
    """
    bits, scale, group = ENCODINGS[name]
    data = width * bits / 8 if scale and group != math.inf else np.ceil(width * bits / 8)
    return data + (scale * np.ceil(width / group) if group != math.inf else scale * (width > 0))


def heads_per_rank(heads: Any, ranks: Any) -> Any:
    """KV heads one tensor-parallel rank stores:  ⌈heads / ranks⌉.

    Never below one: with more ranks than heads every rank holds a copy.
    """
    return -(-heads // ranks)


def bounded_tokens(tokens: Any, limit: Any) -> Any:
    """Tokens a layer with a window (or chunk) of `limit` holds:  min(tokens, limit).  [tokens]"""
    return np.minimum(tokens, limit)


def sequence_bytes(tokens: Any, growing: Any, bounded: Any, constant: Any) -> Any:
    """Logical size of a sequence:  growing · n + bounded(n) + constant · [n > 0].

    tokens    n [tokens]
    growing   bytes each token adds for ever [B/token]
    bounded   bytes held by windows at n tokens [B]
    constant  bytes of recurrent states and encoder caches [B]
    An empty sequence takes nothing.
    """
    return growing * tokens + (bounded + constant * np.greater(tokens, 0))
