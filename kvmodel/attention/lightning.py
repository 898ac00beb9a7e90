"""Lightning attention (MiniMax-M1): linear attention with a matrix per head and no convolution."""

from __future__ import annotations

from typing import Literal

from kvmodel.attention.state import HeadStateLayers


class LightningAttention(HeadStateLayers):
    """One key_dim × value_dim matrix per head."""

    kind: Literal["lightning"] = "lightning"
