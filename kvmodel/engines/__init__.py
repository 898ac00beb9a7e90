"""Engines and how they store KV. A new engine is one file and one line here."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field

from kvmodel.engines.engine import Parallel, Pool
from kvmodel.engines.llamacpp import LlamaCpp
from kvmodel.engines.logical import Logical
from kvmodel.engines.sglang import Sglang
from kvmodel.engines.tensorrt_llm import TensorRtLlm
from kvmodel.engines.vllm import Vllm

KINDS = (
    Logical,
    Vllm,
    Sglang,
    LlamaCpp,
    TensorRtLlm,
)

Engine = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007 - built from the list

__all__ = ["KINDS", "Engine", "Parallel", "Pool"]
