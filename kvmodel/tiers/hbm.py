from __future__ import annotations

from typing import Literal

from kvmodel.quantity import Bytes, Record


class Hbm(Record):
    """The GPUs' own memory: what weights, activations and buffers leave of it."""

    kind: Literal["hbm"] = "hbm"
    capacity: Bytes | None = None
    """KV pool of one engine instance; derived from the GPU's memory and the weights when absent."""
