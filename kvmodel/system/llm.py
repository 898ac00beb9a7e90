"""A large language model as far as its KV cache, its prefill work and its weights are concerned."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from kvmodel.attention import AttentionLayers
from kvmodel.errors import UnsupportedModelError
from kvmodel.formulas.kv_size import (
    Precision,
    canonical,
    element_bytes,
    encoding,
    key_value_dtypes,
    sequence_bytes,
)
from kvmodel.quantity import Number, Quantity, Record


class MixtureOfExperts(Record):
    """Routed experts of the feed-forward layers."""

    experts: int = Field(ge=1)
    """Routed experts per layer."""

    experts_per_token: int = Field(ge=1)
    """Routed experts each token passes through."""

    shared_experts: int = Field(default=0, ge=0)
    """Experts every token passes through."""

    layers: int = Field(default=0, ge=0)
    """Layers that have experts; 0: not stated."""


class Llm(Record):
    """Attention layers by kind, precisions, and parameter counts."""

    name: str = "model"
    """What to call it in answers."""

    preset: str | None = None
    """Preset it comes from, with what was changed."""

    attention: tuple[AttentionLayers, ...] = Field(min_length=1)
    """Groups of equal layers; together all layers that store or read a cache."""

    draft_attention: tuple[AttentionLayers, ...] = ()
    """Layers of the built-in draft (MTP) that own a cache when speculative decoding is on."""

    kv_dtype: str = "bf16"
    """Precision of cached keys and values."""

    k_dtype: str = ""
    """Precision of keys where it differs from kv_dtype."""

    v_dtype: str = ""
    """Precision of values where it differs from kv_dtype."""

    model_dtype: str = "bf16"
    """Precision of activations, and of the past inputs of short convolutions."""

    state_dtype: str = ""
    """Precision of recurrent states; empty: as model_dtype."""

    weight_dtype: str = "bf16"
    """Precision of most weights, used where weight_bytes is not given; empty: mixed or unknown."""

    parameters: Annotated[Number, Quantity("", gt=0)] | None = None
    """Parameters of the model."""

    active_parameters: Annotated[Number, Quantity("", gt=0)] | None = None
    """Parameters each token passes through; empty: all of them."""

    stored_weight_bytes: Annotated[Number, Quantity("B", gt=0)] | None = Field(default=None, alias="weight_bytes")
    """Bytes of the weights, all ranks together; empty: parameters × bytes of weight_dtype."""

    hidden_size: int | None = Field(default=None, ge=1)
    """Width of the residual stream."""

    vocabulary: int | None = Field(default=None, ge=1)
    """Entries of the vocabulary."""

    hidden_layers: int | None = Field(default=None, ge=1)
    """All layers, those without a cache included; cuts the model into pipeline stages. Empty: the last position."""

    max_context: Annotated[Number, Quantity("token", gt=0)] | None = None
    """Longest sequence the model accepts."""

    moe: MixtureOfExperts | None = None
    """Experts; empty: a dense model."""

    @field_validator("kv_dtype", "k_dtype", "v_dtype", "model_dtype", "state_dtype", "weight_dtype")
    @classmethod
    def _known_dtype(cls, value: str) -> str:
        try:
            return canonical(value) if value else value
        except UnsupportedModelError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _active_within_all(self) -> Self:
        if (
            self.parameters is not None
            and self.active_parameters is not None
            and np.any(np.asarray(self.active_parameters) > self.parameters)
        ):
            raise ValueError("active_parameters must not exceed parameters")
        return self

    @model_validator(mode="after")
    def _positions_within_all(self) -> Self:
        last = max((max(group.positions, default=-1) for group in self.attention), default=-1)
        if self.hidden_layers is not None and last >= self.hidden_layers:
            raise ValueError(f"attention: a layer stands at position {last}, but hidden_layers is {self.hidden_layers}")
        return self

    @cached_property
    def precision(self) -> Precision:
        """Encodings of everything the cache holds."""
        key, value = key_value_dtypes(self.kv_dtype)
        key = self.k_dtype or key
        value = self.v_dtype or value
        index = "fp8" if encoding(key).bits <= 8 else key
        return Precision(key, value, self.state_dtype or self.model_dtype, self.model_dtype, index)

    @property
    def layers(self) -> int:
        """Layers in all groups, indexers not counted twice."""
        return sum(group.layers for group in self.attention if group.kind != "indexer")

    @cached_property
    def depth(self) -> int:
        """Layers of the model, for pipeline stages: as stated, else up to the last one listed."""
        listed = max((max(group.positions) for group in self.attention if group.positions), default=-1) + 1
        return self.hidden_layers or listed or max(group.layers for group in self.attention)

    @property
    def growing_bytes_per_token(self) -> Any:
        """Bytes each further token adds to a sequence, logical: one copy, no engine [B/token]."""
        return self.rank_growing_bytes_per_token(1)

    def rank_growing_bytes_per_token(self, tp: Any) -> Any:
        """The same on one of `tp` tensor-parallel ranks [B/token]. Copied heads and latents do not shrink."""
        tp = _ranks(tp)
        return sum(group.growing_bytes_per_token(self.precision, tp) for group in self.attention) + 0.0 * tp

    def fixed_bytes_per_sequence(self, tp: Any = 1) -> Any:
        """Bytes a long sequence holds beside its growing part: full windows, states, encoder caches [B]."""
        tp = _ranks(tp)
        return (
            sum(
                group.bounded_bytes(np.inf, self.precision, tp) + group.state_bytes(self.precision, tp)
                for group in self.attention
            )
            + 0.0 * tp
        )

    def sequence_bytes(self, tokens: Any) -> Any:
        """Logical size of a sequence of `tokens`; windows level off at their length [B]."""
        return self.rank_sequence_bytes(tokens, 1)

    def rank_sequence_bytes(self, tokens: Any, tp: Any) -> Any:
        """Size of a sequence on one of `tp` tensor-parallel ranks [B]."""
        tokens, tp = np.asarray(tokens, dtype=float), _ranks(tp)
        bounded = sum(group.bounded_bytes(tokens, self.precision, tp) for group in self.attention)
        states = sum(group.state_bytes(self.precision, tp) for group in self.attention)
        return sequence_bytes(tokens, self.rank_growing_bytes_per_token(tp), bounded, states)

    def replication(self, tp: Any) -> Any:
        """How many times the growing part is stored over all ranks: tp · rank / logical; 1 when it divides.

        Where nothing grows it is the ratio of the fixed parts.
        """
        tp = _ranks(tp)
        if self.growing_bytes_per_token:
            return tp * self.rank_growing_bytes_per_token(tp) / self.growing_bytes_per_token
        return tp * self.fixed_bytes_per_sequence(tp) / self.fixed_bytes_per_sequence()

    @property
    def attention_flops_per_token_squared(self) -> float:
        """a in a·n²: attention FLOPs of a causal prefill of n tokens over layers that see everything
        [FLOP/token²].

        Scores and weighted sums, 2 FLOPs each per element, half the pairs by causality:
        a = Σ layers · query heads · (d_k + d_v). With a cached prefix p the work left is a·(n² - p²).
        """
        return sum(group.quadratic_flops() for group in self.attention)

    @property
    def window_flops_per_token(self) -> float:
        """Attention FLOPs per token of windows, selected tokens and state updates, windows full [FLOP/token].

        A prompt shorter than a window costs less than this times its length.
        """
        return sum(group.bounded_flops_per_token() for group in self.attention)

    @property
    def flops_per_token(self) -> Any:
        """Linear FLOPs per token: 2 · active parameters [FLOP/token]."""
        active = self.active_parameters if self.active_parameters is not None else self.parameters
        if active is None:
            raise UnsupportedModelError(f"{self.name}: neither active_parameters nor parameters is known")
        return 2.0 * active

    @property
    def weight_bytes(self) -> Any:
        """Bytes of all weights over all ranks: as given, else parameters × bytes of weight_dtype [B]."""
        if self.stored_weight_bytes is not None:
            return self.stored_weight_bytes
        if self.parameters is None or not self.weight_dtype:
            missing = (
                "parameters is not known"
                if self.parameters is None
                else ("the weights are quantised in a mixed or unknown way (weight_dtype is empty)")
            )
            raise UnsupportedModelError(
                f"{self.name}: {missing}; give weight_bytes, the bytes of all weights (size of the checkpoint)"
            )
        return self.parameters * element_bytes(self.weight_dtype)


def _ranks(tp: Any) -> Any:
    return np.asarray(tp) if np.ndim(tp) else int(tp)
