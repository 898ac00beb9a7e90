"""What every engine answers: how many tokens a pool holds, what a stored sequence takes, at which lengths it
is reusable.

An engine sees the model through `attention`, `draft_attention`, `precision`, `max_context` and the byte
methods; it never looks at an architecture's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from kvmodel.errors import KvmodelError, UnsupportedModelError
from kvmodel.formulas.kv_size import Precision
from kvmodel.quantity import Fraction, Record

LONGEST_REQUEST = 10**12  # tokens


class Model(Protocol):
    """The part of a model record an engine needs."""

    name: str
    attention: Any
    draft_attention: Any
    max_context: Any
    depth: int
    precision: Precision
    growing_bytes_per_token: Any

    def rank_growing_bytes_per_token(self, tp: Any) -> Any: ...
    def rank_sequence_bytes(self, tokens: Any, tp: Any) -> Any: ...


class Parallel(NamedTuple):
    """How a model is spread: tensor, pipeline, decode-context ranks, and data-parallel attention groups."""

    tp: int = 1
    pp: int = 1
    dcp: int = 1
    dp_attention: int = 1

    @property
    def attention_tp(self) -> int:
        """Ranks over which the heads of one attention copy are divided."""
        return max(1, self.tp // self.dp_attention)


class Pool(NamedTuple):
    """KV pool of one rank. page_bytes × blocks never exceeds the memory."""

    block_tokens: int  # tokens one block holds
    page_bytes: float  # bytes of one block over all layers that share it, on one rank
    blocks: int
    tokens: int  # what the engine prints as its capacity
    concurrency_at_max_model_len: float
    wasted_fraction: float  # share of the pool that holds no KV of the sequences counted by the concurrency
    reuse_granularity_tokens: int  # lengths at which a stored prefix can be taken up again
    rules: str  # which version's rules were applied


class EngineRecord(Record):
    """Settings all engines share."""

    version: str = ""
    """Engine version whose rules apply; empty: the newest known ones."""

    block_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    """Tokens of a block (page) as configured; empty: the engine's default."""

    memory_fraction: Fraction = 0.9
    """Share of the GPU's memory the engine may use."""

    def reuse_granularity_tokens(self, llm: Model, tp: Any = 1) -> Any:
        """Tokens between lengths at which a stored prefix can be taken up again; `tp` may be an array [tokens]."""
        return per_rank_count(tp, lambda ranks: self._granularity(llm, ranks))

    def stored_sequence_bytes(self, llm: Model, tokens: Any, tp: Any = 1) -> Any:
        """Bytes an engine occupies for a resting sequence over all `tp` ranks, rounded to its blocks [B]."""
        tokens = np.asarray(tokens, dtype=float)
        return per_rank_count(tp, lambda ranks: ranks * self._stored(llm, tokens, ranks))

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        """What a pool of `memory` bytes on one rank holds."""
        raise NotImplementedError

    def _granularity(self, llm: Model, tp: int) -> int:
        raise NotImplementedError

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        """Bytes on one of tp ranks."""
        raise NotImplementedError


def per_rank_count(tp: Any, answer: Callable[[int], Any]) -> Any:
    """`answer` for each distinct rank count, placed where that count stands; layouts are not arithmetic in tp."""
    if np.ndim(tp) == 0:
        return answer(int(tp))
    tp = np.asarray(tp)
    result = 0.0
    for ranks in np.unique(tp):
        result = result + np.where(tp == ranks, answer(int(ranks)), 0.0)
    return result


def request_length(llm: Model, max_model_len: int | None) -> int:
    """Length of the longest request: as asked, else the model's own; neither is an error, not a guess."""
    length = max_model_len if max_model_len is not None else llm.max_context
    if length is None:
        raise KvmodelError(f"{llm.name}: the model states no longest context; give max_model_len")
    if not 1 <= np.max(length) <= LONGEST_REQUEST:
        raise KvmodelError(f"max_model_len must be from 1 to {LONGEST_REQUEST:,} tokens, got {np.max(length):,}")
    return int(np.max(length))


def check_memory(memory: float) -> None:
    """A pool needs a positive, finite size."""
    if not np.isfinite(memory) or memory <= 0:
        raise KvmodelError(f"the KV pool of a rank must be more than 0 B, got {memory:g} B")


def wasted(pool_bytes: float, sequences: float, sequence_bytes: float) -> float:
    """Share of the pool not filled by `sequences` copies of a sequence."""
    return float(max(0.0, 1.0 - sequences * sequence_bytes / pool_bytes)) if pool_bytes else 0.0


@lru_cache(maxsize=1024)
def version_number(text: str, newest: tuple[int, int, int]) -> tuple[int, int, int]:
    """(major, minor, patch) found in a version text such as "0.10.2-0.11 (V1)"; the newest rules when there
    is none.

    Of a range the lower end counts: it is what the user is sure to have.
    """
    found = re.search(r"(?<![\d.])(\d{1,2})\.(\d{1,3})(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else newest  # type: ignore[return-value]


def rules_of(kind: str, version: str, oldest: tuple[int, int, int], newest: tuple[int, int, int]) -> str:
    """What to say about the rules applied: the version asked for, or the nearest known one."""
    number = version_number(version, newest)
    known = min(max(number, oldest), newest)
    shown = ".".join(map(str, known))
    if not version or known == number:
        return version or shown
    return f"{version} (rules of {kind} {shown})"


def divisible_heads(llm: Model, tp: int, kind: str) -> None:
    """Engines refuse a tensor-parallel degree that neither divides the KV heads nor is divided by them."""
    for group in llm.attention:
        heads = vars(group).get("kv_heads")  # not getattr: asking a record for a field it does not have is slow
        if heads and heads % tp and tp % heads:
            raise UnsupportedModelError(
                f"{kind}: {heads} KV heads cannot be spread over {tp} ranks (neither divides the other)"
            )
