"""Recurrent state: a matrix per head and the last inputs of a short convolution, of the same size at every
length.

Tensor parallelism divides heads and channels. The state can be kept in another precision than the
convolution inputs. A state is reusable only at the lengths where a copy of it was kept.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from kvmodel.attention.layers import LayerGroup
from kvmodel.formulas.kv_size import Precision, Storage, heads_per_rank, vector_bytes


class StateLayers(LayerGroup):
    """Layers with a constant state; a kind says how many elements there are."""

    state_dtype: str = ""
    """Precision of the recurrent state where the architecture fixes it; empty: the model's choice."""

    widens: bool = True
    """Whether draft tokens lengthen the stored convolution inputs."""

    def recurrent_elements(self, tp: Any = 1) -> Any:
        """Elements of the recurrent state of one layer on one rank."""
        return 0

    def convolution_channels(self, tp: Any = 1) -> Any:
        """Channels of the short convolutions of one layer on one rank, all of them together."""
        return 0

    def convolution_columns(self) -> int:
        """Past inputs a convolution keeps: its kernel less one."""
        return 0

    def layer_state_bytes(self, precision: Precision, tp: Any = 1, draft_tokens: int = 0) -> Any:
        """Bytes of one layer's state on one rank; draft tokens widen the convolution inputs [B]."""
        columns = self.convolution_columns() + (draft_tokens if self.widens else 0)
        state = vector_bytes(self.recurrent_elements(tp), self.state_dtype or precision.state)
        return state + vector_bytes(self.convolution_channels(tp) * columns, precision.convolution)

    def state_bytes(self, precision: Precision, tp: Any = 1) -> Any:
        return self.layers * self.layer_state_bytes(precision, tp)

    def storage(self, precision: Precision, tp: int = 1, draft_tokens: int = 0) -> tuple[Storage, ...]:
        size = self.layer_state_bytes(precision, tp, draft_tokens)
        return (Storage("state", self.layers, size, positions=self.positions),)

    def bounded_flops_per_token(self) -> float:
        # decay, rank-one update and read-out of each element: about six operations
        return float(
            self.layers
            * (6 * self.recurrent_elements() + 2 * self.convolution_channels() * (self.convolution_columns() + 1))
        )


class HeadStateLayers(StateLayers):
    """States of `heads` matrices, `key_dim` × `value_dim` each."""

    heads: int = Field(ge=1)
    """Heads that own a state matrix."""

    key_dim: int = Field(ge=1)
    """Rows of a state matrix."""

    value_dim: int = Field(ge=1)
    """Columns of a state matrix."""

    def recurrent_elements(self, tp: Any = 1) -> Any:
        return heads_per_rank(self.heads, tp) * self.key_dim * self.value_dim
