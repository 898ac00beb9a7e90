"""Kinds of attention layer. A new kind is one file and one line here."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field

from kvmodel.attention.chunked import ChunkedLocal
from kvmodel.attention.compressed import CompressedAttention
from kvmodel.attention.cross import CrossAttention
from kvmodel.attention.full import FullAttention
from kvmodel.attention.gated_delta_net import GatedDeltaNet
from kvmodel.attention.indexer import Indexer
from kvmodel.attention.kda import KimiDeltaAttention
from kvmodel.attention.latent import LatentAttention
from kvmodel.attention.lightning import LightningAttention
from kvmodel.attention.mamba1 import Mamba1
from kvmodel.attention.mamba2 import Mamba2
from kvmodel.attention.shared import SharedLayers
from kvmodel.attention.short_convolution import ShortConvolution
from kvmodel.attention.sliding_window import SlidingWindow

KINDS = (
    FullAttention,
    LatentAttention,
    SlidingWindow,
    ChunkedLocal,
    CompressedAttention,
    Indexer,
    SharedLayers,
    CrossAttention,
    Mamba1,
    Mamba2,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
)

AttentionLayers = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007 - built from the list
