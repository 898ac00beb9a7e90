"""Short gated convolution (LFM2): the last inputs of a convolution are the whole state."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kvmodel.attention.state import StateLayers
from kvmodel.formulas.kv_size import heads_per_rank


class ShortConvolution(StateLayers):
    """`channels` × (kernel - 1) past inputs."""

    kind: Literal["short_convolution"] = "short_convolution"
    widens: bool = False

    channels: int = Field(ge=1)
    """Channels of the convolution."""

    conv_kernel: int = Field(ge=1)
    """Kernel length (conv_L_cache)."""

    def convolution_channels(self, tp: Any = 1) -> Any:
        return heads_per_rank(self.channels, tp)

    def convolution_columns(self) -> int:
        return self.conv_kernel - 1
