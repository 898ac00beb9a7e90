"""The file of observed KV-cache sizes that `kvmodel evaluate` checks: what a case may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvmodel.errors import Problem, StudyError


class SizeCase(BaseModel):
    """One observation, as far as its source prints it. Other keys are kept and not read."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True, protected_namespaces=())

    id: str
    """Name of the case."""
    source: str | None = None
    """Where it was published."""
    engine: str
    """vllm, sglang, llama.cpp, tensorrt-llm; any other name is taken without engine rules."""
    engine_version: str = ""
    """Version text as printed; its first number selects the rules."""
    model: str = ""
    """Name of the model."""
    config_file: str | None = None
    """config.json of the model, or of one of equal cache geometry, in the directory of configs."""
    config: dict[str, Any] | None = None
    """The config.json itself, in place of config_file."""
    kind: str | None = None
    """pool (default), required_for_max_len, estimated_max_len, buffer, state_per_sequence, page_alignment,
    consistency, tensor_shape, published_estimate."""
    kv_dtype: str | None = None
    """Cache type."""
    tp: int | None = Field(default=None, ge=1)
    """Tensor-parallel ranks."""
    pp: int | None = Field(default=None, ge=1)
    """Pipeline stages."""
    dcp: int | None = Field(default=None, ge=1)
    """Decode context parallelism."""
    dp_attention: int | None = Field(default=None, ge=1)
    """Data-parallel attention groups."""
    block_size: int | None = Field(default=None, ge=1)
    """Tokens of a block as printed; beside states a result of the engine, else a setting."""
    available_kv_bytes: float | None = Field(default=None, ge=0)
    """Bytes of the pool or buffer on one rank, or bytes printed as needed."""
    available_is_rounded_to_bytes: float | None = Field(default=None, ge=0)
    """Half of the last printed digit of that figure."""
    tokens: int | None = Field(default=None, ge=0)
    """Tokens printed for that pool, or the context of that buffer."""
    blocks: int | None = Field(default=None, ge=0)
    """Blocks printed."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Longest request."""
    max_concurrency: float | None = Field(default=None, gt=0)
    """Printed number of longest requests that fit."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    """Tokens scheduled in one step."""
    speculative_tokens: int | None = Field(default=None, ge=0)
    """Draft tokens per step."""
    prefix_caching: str | None = None
    """none, align or all: how states are kept."""
    slots: int | None = Field(default=None, ge=1)
    """Requests side by side (llama.cpp)."""
    approximate: bool = False
    """The source calls its figures approximate."""
    note: str | None = None
    """Prose; settings found nowhere else are read from it."""


class SizeCaseFile(BaseModel):
    """Observed KV-cache sizes."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    schema_version: int = 1
    """Version of this layout."""
    description: str = ""
    """What the collection is."""
    cases: list[SizeCase]
    """The observations."""


def size_cases(document: Mapping[str, Any], source: str = "cases") -> list[Mapping[str, Any]]:
    """The cases of a parsed file, checked. All problems are reported together (StudyError)."""
    try:
        SizeCaseFile.model_validate(document)
    except ValidationError as error:
        raise StudyError(
            source,
            [Problem(".".join(map(str, e["loc"])), f"{e['msg']}, got {e['input']!r:.60}") for e in error.errors()],
        ) from None
    return list(document["cases"])
