"""Compressed attention (DeepSeek-V4): one stored entry for every `ratio` tokens, and a window of recent
tokens.

Keys and values are the same single vector, whole on every tensor-parallel rank. Layers of ratio 4 also own
an index key per entry; a compressor holds the tokens that do not fill an entry yet.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.layers import LayerGroup
from kvmodel.formulas.kv_size import Precision, Storage, bounded_tokens, vector_bytes

FP8_QUANTISED_BLOCK = 64  # elements that share a one-byte scale in the fp8 row; scales are padded to 8 bytes
PAGE_MULTIPLE = 576  # bytes to which engines round the pages of this layout


class CompressedAttention(LayerGroup):
    """Entries of `dim` elements for every `ratio` tokens (0: window only)."""

    kind: Literal["compressed"] = "compressed"

    ratio: int = Field(ge=0)
    """Tokens per stored entry; 0 for layers with a window only."""

    dim: int = Field(ge=1)
    """Elements of an entry (head_dim); keys and values share it."""

    rope_dim: int = Field(ge=0)
    """Rotary elements among them, which the fp8 row keeps in bf16."""

    window: int = Field(ge=1)
    """Recent tokens every layer keeps uncompressed."""

    index_dim: int = Field(default=0, ge=0)
    """Elements of the index key of an entry; 0 for layers without an indexer."""

    query_heads: int = Field(default=0, ge=0)
    """Query heads; used for FLOPs only."""

    index_heads: int = Field(default=0, ge=0)
    """Index query heads; used for FLOPs only."""

    selected_entries: int = Field(default=0, ge=0)
    """Entries an indexer selects for each query (index_topk); 0: all of them."""

    def row_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        """Bytes of one entry in one layer [B]; in fp8 448 + 2·64 + 8 scale bytes = 584 for 512 of which 64 rotary."""
        if precision.key == "fp8":
            scales = -(-(self.dim - self.rope_dim) // FP8_QUANTISED_BLOCK)
            return self.dim - self.rope_dim + 2 * self.rope_dim + 8 * -(-scales // 8) + 0 * tp
        return vector_bytes(self.dim, precision.key) + 0 * tp

    def index_bytes(self, precision: Precision) -> Any:
        """Bytes of the index key of one entry [B]."""
        name = "fp8_block128" if precision.index == "fp8" else precision.index
        return vector_bytes(self.index_dim, name)

    def growing_bytes_per_token(self, precision: Precision, tp: Any = 1) -> Any:
        if not self.ratio:
            return 0.0 * tp
        return self.layers * (self.row_bytes(precision, tp) + self.index_bytes(precision)) / self.ratio

    def bounded_bytes(self, tokens: Any, precision: Precision, tp: Any = 1) -> Any:
        held = bounded_tokens(tokens, self.window) * self.row_bytes(precision, tp)
        return self.layers * (held + bounded_tokens(tokens, self.residual_tokens) * self.residual_bytes())

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        """Entries and index keys in blocks of 256 tokens, the window in blocks of 64, compressors in 4 or 8."""
        row = self.row_bytes(precision)

        def place(role: str, row_bytes: float, limit: int, block: int) -> Storage:
            return Storage(role, self.layers, row_bytes, limit, True, block, PAGE_MULTIPLE, self.positions)

        stored = [place("window", row, self.window, 64)]
        if self.ratio:
            block = 4 if self.index_dim else 8
            state = self.residual_bytes() / (self.dim + self.index_dim)
            stored += [
                place("tokens", row / self.ratio, 0, 256),
                place("window", state * self.dim, self.residual_tokens, block),
            ]
            if self.index_dim:
                stored += [
                    place("tokens", self.index_bytes(precision) / self.ratio, 0, 256),
                    place("window", state * self.index_dim, self.residual_tokens, block),
                ]
        return tuple(stored)

    @property
    def residual_tokens(self) -> int:
        """Tokens the compressor may still need: two entries' worth where entries overlap (ratio 4), else one's."""
        return 2 * self.ratio if self.index_dim else self.ratio

    def residual_bytes(self) -> float:
        """Bytes of one token in the compressor: value and score in f32, for the entry and for the index key [B]."""
        overlap = 2 if self.index_dim else 1
        return 2.0 * 4 * overlap * (self.dim + self.index_dim) if self.ratio else 0.0

    def quadratic_flops(self) -> float:
        if not self.ratio:
            return 0.0
        attended = 0 if self.selected_entries else 2 * self.query_heads * self.dim
        return float(self.layers * (attended + self.index_heads * self.index_dim)) / self.ratio

    def bounded_flops_per_token(self) -> float:
        return 4.0 * self.layers * self.query_heads * self.dim * (self.window + self.selected_entries)
