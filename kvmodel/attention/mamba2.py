"""Mamba-2 (Nemotron, Granite 4, Falcon-H1): a head_dim × state matrix per head, convolution over inputs and groups."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from kvmodel.attention.state import HeadStateLayers
from kvmodel.formulas.kv_size import heads_per_rank


class Mamba2(HeadStateLayers):
    """`heads` matrices of key_dim (head dim) × value_dim (state size); B and C come in `groups`."""

    kind: Literal["mamba2"] = "mamba2"

    groups: int = Field(ge=1)
    """Groups that share B and C (n_groups)."""

    conv_kernel: int = Field(ge=1)
    """Kernel of the short convolution."""

    def convolution_channels(self, tp: Any = 1) -> Any:
        # engines pad the groups to the ranks when they do not divide
        groups = np.where(np.equal(self.groups % np.asarray(tp), 0), self.groups, np.maximum(tp, self.groups))
        inputs = heads_per_rank(self.heads, tp) * self.key_dim
        return inputs + 2 * heads_per_rank(groups, tp) * self.value_dim

    def convolution_columns(self) -> int:
        return self.conv_kernel - 1
