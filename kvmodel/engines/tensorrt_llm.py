"""TensorRT-LLM: pools of blocks, one per attention window and head count. Rules from logs, not from its source."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from kvmodel.engines.engine import (
    EngineRecord,
    Model,
    Parallel,
    Pool,
    check_memory,
    divisible_heads,
    request_length,
    wasted,
)
from kvmodel.errors import UnsupportedModelError

DEFAULT_BLOCK = 32


class TensorRtLlm(EngineRecord):
    """Blocks per pool; memory is divided between the pools by what one longest request needs in each."""

    kind: Literal["tensorrt-llm"] = "tensorrt-llm"

    def _pools(self, llm: Model, ranks: int) -> dict[tuple[int, float], float]:
        """(window or 0, row bytes) -> bytes per token over the layers of that pool."""
        divisible_heads(llm, ranks, "tensorrt-llm")
        pools: dict[tuple[int, float], float] = {}
        for group in llm.attention:
            for stored in group.storage(llm.precision, ranks):
                if stored.role not in ("tokens", "window") or stored.page_multiple:
                    raise UnsupportedModelError(f"tensorrt-llm: the pool of {group.kind} layers is not modelled")
                key = (stored.limit, 0.0 if stored.latent else stored.row_bytes)
                pools[key] = pools.get(key, 0.0) + stored.layers * stored.row_bytes
        return pools

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        check_memory(memory)
        block, length = self.block_tokens or DEFAULT_BLOCK, request_length(llm, max_model_len)
        pools = self._pools(llm, parallel.attention_tp)
        needs = {
            key: rate / parallel.pp * math.ceil((min(key[0], length) if key[0] else length) / block) * block
            for key, rate in pools.items()
        }
        sequence = sum(needs.values())
        concurrency = memory / sequence
        growing = sum(rate / parallel.pp for (limit, _), rate in pools.items() if not limit)
        # tokens of the pool that keeps everything, from its share of the memory
        share = sum(needs[key] for key in needs if not key[0]) / sequence if growing else 1.0
        page = (growing or sum(pools.values()) / parallel.pp) * block
        blocks = int(memory * share // page)
        held = float(llm.rank_sequence_bytes(length, parallel.attention_tp)) / parallel.pp
        return Pool(
            block,
            page,
            blocks,
            blocks * block,
            concurrency,
            wasted(memory, concurrency, held),
            block,
            self.version or "logs of 0.8 to 1.x",
        )

    def _granularity(self, llm: Model, tp: int) -> int:
        return self.block_tokens or DEFAULT_BLOCK

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        block = self.block_tokens or DEFAULT_BLOCK
        held = np.ceil(tokens / block)
        return sum(
            rate * block * (np.minimum(held, math.ceil(limit / block) + 1) if limit else held)
            for (limit, _), rate in self._pools(llm, tp).items()
        )
