"""llama.cpp: buffers of cells sized at start for the whole context. Rules from logs of 2024 to 2026."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from kvmodel.engines.engine import (
    EngineRecord,
    Model,
    Parallel,
    Pool,
    check_memory,
    request_length,
    wasted,
)
from kvmodel.errors import KvmodelError, UnsupportedModelError
from kvmodel.formulas.kv_size import Precision

CELL_PADDING = 256


def padded(cells: Any) -> Any:
    """Cells rounded up to the padding."""
    return np.ceil(np.asarray(cells, float) / CELL_PADDING) * CELL_PADDING


class LlamaCpp(EngineRecord):
    """K and V buffers per layer, `slots` requests side by side."""

    kind: Literal["llamacpp"] = "llamacpp"

    slots: int = Field(default=1, ge=1)
    """Requests served at once (parallel)."""

    unified: bool = False
    """One buffer shared by all slots instead of one each (kv-unified)."""

    micro_batch: int = Field(default=512, ge=1)
    """Tokens computed at once (ubatch); windows keep room for them."""

    full_windows: bool = False
    """Windowed layers keep the whole context (swa-full)."""

    def cells(self, context: Any) -> Any:
        """Cells of a layer that keeps everything, all slots together, for a context over all slots."""
        if self.slots == 1 or self.unified:
            return padded(context)
        return self.slots * padded(np.ceil(np.asarray(context, float) / self.slots))

    def window_cells(self, context: Any, window: int) -> Any:
        """Cells of a windowed layer, all slots together."""
        if self.full_windows:
            return self.cells(context)
        buffers = 1 if self.unified else self.slots
        room = padded(window * (self.slots if self.unified else 1) + self.micro_batch)
        return buffers * np.minimum(self.cells(context) / buffers, room)

    def buffer_bytes(self, llm: Model, context: Any) -> Any:
        """Bytes of all buffers for a context over all slots [B]."""
        precision = self._precision(llm)
        total = np.zeros_like(np.asarray(context, float))
        for group in llm.attention:
            for stored in group.storage(precision, 1):
                if stored.page_multiple:
                    raise UnsupportedModelError("llamacpp: compressed attention is not modelled")
                if stored.role == "tokens":
                    cells = self.cells(context)
                elif stored.role in ("window", "chunk"):
                    cells = self.window_cells(context, stored.limit)
                elif stored.role == "encoder":
                    raise UnsupportedModelError("llamacpp: cross attention is not modelled")
                else:
                    cells = self.slots
                total = total + stored.layers * stored.row_bytes * cells
        return total

    @staticmethod
    def _precision(llm: Model) -> Precision:
        return llm.precision._replace(state="f32", convolution="f32")

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        """The largest context (a multiple of the cell padding) whose buffers fit; layers are split over devices."""
        check_memory(memory)
        memory = memory * parallel.tp * parallel.pp
        length = request_length(llm, max_model_len)
        step = CELL_PADDING * (1 if self.unified else self.slots)
        low, high = 0, 2**40 // step
        if float(self.buffer_bytes(llm, step)) > memory:
            raise KvmodelError(f"llamacpp: {memory:.0f} B do not hold the buffers of {step} cells")
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.buffer_bytes(llm, middle * step) <= memory else (low, middle - 1)
        context = low * step
        used = float(self.buffer_bytes(llm, context))
        concurrency = context / length if llm.growing_bytes_per_token else float(self.slots)
        return Pool(
            CELL_PADDING,
            used / low / (step // CELL_PADDING),
            context // CELL_PADDING,
            context,
            concurrency,
            wasted(used, concurrency, float(llm.rank_sequence_bytes(length, 1))),
            1,
            self.version or "logs of 2024 to 2026",
        )

    def _granularity(self, llm: Model, tp: int) -> int:
        return 1

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        one = self.model_copy(update={"slots": 1})
        return np.where(tokens > 0, one.buffer_bytes(llm, tokens), 0.0) / tp
