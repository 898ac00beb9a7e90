"""No engine: the bytes a sequence needs, in blocks of one token unless asked otherwise."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from kvmodel.engines.engine import EngineRecord, Model, Parallel, Pool, check_memory, request_length, wasted


class Logical(EngineRecord):
    """Ideal storage: nothing rounded, nothing reserved."""

    kind: Literal["logical"] = "logical"

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        check_memory(memory)
        length, block = request_length(llm, max_model_len), self.block_tokens or 1
        ranks = parallel.attention_tp
        growing = llm.rank_growing_bytes_per_token(ranks) / (parallel.pp * parallel.dcp)
        fixed = llm.rank_sequence_bytes(length, ranks) - llm.rank_growing_bytes_per_token(ranks) * length
        sequence = float(growing * length + fixed / parallel.pp)
        page = float(growing) * block
        blocks = int(memory // page) if page else int(memory // sequence)
        concurrency = memory / sequence
        return Pool(
            block,
            page or sequence,
            blocks,
            int(concurrency * length),
            concurrency,
            wasted(memory, concurrency, sequence),
            block,
            "bytes as the model defines them",
        )

    def _granularity(self, llm: Model, tp: int) -> int:
        return self.block_tokens or 1

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        block = self.block_tokens or 1
        return llm.rank_sequence_bytes(np.ceil(tokens / block) * block, tp)
