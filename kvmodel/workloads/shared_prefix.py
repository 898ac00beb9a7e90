"""Prompt heads that many requests share: system prompts, tool definitions, common documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import model_validator

from kvmodel.quantity import Quantity, Record, Tokens


class Popularity(Record):
    """How requests spread over the variants."""

    zipf: Annotated[Any, Quantity("", ge=0, le=5)] = 0.0
    """The k-th most popular variant is used in proportion to k^-zipf; 0 means equally."""


class SharedPrefix(Record):
    """A prompt head in several variants. One physical copy of a variant serves every request that may share it. Heads
    nest: tool definitions behind a system prompt, a document behind both."""

    kind: Literal["shared_prefix"] = "shared_prefix"
    tokens: Tokens
    """Length of the head, without those it lies under."""
    under: str | None = None
    """Name of the shared prefix its text comes after; it begins the prompt when absent. A hit needs both."""
    variants: Annotated[int, Quantity("", ge=1, le=1e6)] = 1
    """Different heads in use; of one that lies under another, for each variant of that one."""
    popularity: Popularity = Popularity()
    """How requests spread over the variants; the same behind each variant of the prefix it lies under."""
    used_by: tuple[str, ...] | None = None
    """Names of the session populations that use it, with all it lies under; all of them when absent. A population has
    the deepest it uses."""

    @model_validator(mode="after")
    def _whole(self) -> SharedPrefix:
        if float(self.variants) != int(float(self.variants)):
            raise ValueError("variants must be a whole number")
        return self
