"""SGLang: one pool of token rows, or two pools beside each other for windows and for states. Rules of 0.5.9."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from kvmodel.engines.engine import (
    EngineRecord,
    Model,
    Parallel,
    Pool,
    check_memory,
    divisible_heads,
    request_length,
    rules_of,
    version_number,
    wasted,
)
from kvmodel.errors import UnsupportedModelError
from kvmodel.quantity import Fraction, Number, Quantity

OLDEST, NEWEST = (0, 5, 0), (0, 5, 9)
INDEXER_COUNTED = (0, 5, 4)  # before, the budget left the index cache out although it is stored
DEFAULT_PAGE, LATENT_PAGE = 1, 64


class Cells(NamedTuple):
    """Bytes per token of the pools on one rank, and of one sequence's states."""

    full: float
    window: float
    state: float
    limit: int


class Sglang(EngineRecord):
    """Token rows; windows and states have pools of their own."""

    kind: Literal["sglang"] = "sglang"

    version: str = "0.5.9"
    """SGLang version whose rules apply."""

    memory_fraction: Fraction = 0.9
    """Share of the GPU's memory for weights and pools (mem_fraction_static)."""

    window_ratio: Fraction = 0.8
    """Tokens of the window pool over tokens of the full pool (swa_full_tokens_ratio)."""

    state_ratio: Annotated[Number, Quantity("", gt=0)] = 0.9
    """State memory over KV memory (mamba_full_memory_ratio)."""

    states: int | None = Field(default=None, ge=1)
    """A fixed number of states instead of a ratio (max_mamba_cache_size)."""

    attention_backend: Literal["default", "trtllm"] = "default"
    """With trtllm the fp8 row of sparse MLA has no scales."""

    speculative_tokens: int = Field(default=0, ge=0, le=1024)
    """Draft tokens; each running request then keeps that many states more."""

    def cells(self, llm: Model, ranks: int, budget: bool = False) -> Cells:
        """Bytes per token and state; `budget`: as the engine reckons when it divides memory, not as it stores."""
        divisible_heads(llm, ranks, "sglang")
        precision = llm.precision
        counted = not budget or version_number(self.version, NEWEST) >= INDEXER_COUNTED
        if any(group.kind == "latent" for group in llm.attention):
            precision = precision._replace(index="fp8")
        if self.attention_backend == "trtllm" and precision.key == "fp8":
            precision = precision._replace(key="fp8_per_tensor", value="fp8_per_tensor")
        full = window = state = 0.0
        limits = set()
        for group in llm.attention:
            if group.kind == "indexer" and not counted:
                continue
            for stored in group.storage(precision, ranks):
                if stored.page_multiple:
                    raise UnsupportedModelError("sglang: compressed attention is not modelled")
                if stored.role == "tokens":
                    full += stored.layers * stored.row_bytes
                elif stored.role in ("window", "chunk"):
                    window += stored.layers * stored.row_bytes
                    limits.add(stored.limit)
                elif stored.role == "state":
                    state += stored.layers * stored.row_bytes
                else:
                    raise UnsupportedModelError("sglang: cross attention is not modelled")
        return Cells(full, window, state, max(limits, default=0))

    def page(self, llm: Model) -> int:
        """Tokens of a page."""
        latent = any(group.kind == "latent" and group.selected_tokens for group in llm.attention)
        return self.block_tokens or (LATENT_PAGE if latent else DEFAULT_PAGE)

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        check_memory(memory)
        cells, page = self.cells(llm, parallel.attention_tp, budget=True), self.page(llm)
        full, window, state = (value / parallel.pp for value in cells[:3])
        length = request_length(llm, max_model_len)
        free, slots = self._state_pool(memory, state)
        if not full and not window:
            return self._states_only(memory, state, length)
        cell = full + self.window_ratio * window if full else window
        tokens = int(free // cell) // page * page
        held = math.ceil(length / page) * page
        concurrency = min(tokens / held, slots) if full else min(tokens / min(held, cells.limit), slots)
        if full and window:
            concurrency = min(concurrency, int(tokens * self.window_ratio) // page * page / min(held, cells.limit))
        sequence = full * length + window * min(length, cells.limit) + state
        return Pool(
            page,
            cell * page,
            tokens // page,
            tokens,
            concurrency,
            wasted(memory, concurrency, sequence),
            page,
            rules_of("sglang", self.version, OLDEST, NEWEST),
        )

    def window_tokens(self, full_tokens: int, page: int) -> int:
        """Tokens of the window pool beside a full pool of `full_tokens`."""
        return int(full_tokens * self.window_ratio) // page * page

    def _state_pool(self, memory: float, state: float) -> tuple[float, float]:
        """Memory left for KV, and requests the state pool holds."""
        if not state:
            return memory, np.inf
        if self.states is not None:
            return memory - (self.states + 1) * state, float(self.states)
        share = memory * self.state_ratio / (1 + self.state_ratio)
        slots = int(share // state) - 1  # one spare slot
        return memory - share, slots / (1 + self.speculative_tokens)

    def _states_only(self, memory: float, state: float, length: int) -> Pool:
        slots = int(memory // state) - 1
        return Pool(
            length,
            state,
            slots,
            slots * length,
            float(slots),
            wasted(memory, slots, state),
            length,
            rules_of("sglang", self.version, OLDEST, NEWEST),
        )

    def _granularity(self, llm: Model, tp: int) -> int:
        return self.page(llm)

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        cells, page = self.cells(llm, tp), self.page(llm)
        held = np.ceil(tokens / page) * page
        bounded = np.minimum(held, math.ceil(cells.limit / page) * page)
        return cells.full * held + cells.window * bounded + cells.state * (tokens > 0)
