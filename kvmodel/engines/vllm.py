"""vLLM: blocks shared by groups of layers. Rules of 0.6 (V0) to 0.33, by version."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

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
from kvmodel.engines.vllm_layout import Group, Layout, build
from kvmodel.errors import KvmodelError, UnsupportedModelError
from kvmodel.formulas.kv_size import Precision

OLDEST, NEWEST = (0, 6, 0), (0, 33, 0)
HYBRID_MANAGER = (0, 10, 0)  # before: windows beside full layers are kept in full
TOKENS_BY_CONCURRENCY = (0, 20, 1)  # from 0.20.2: printed tokens are concurrency × longest request
PADS_PAGES = (0, 21, 0)  # before: pages that do not divide stop the start
CONCURRENT_BATCHES = (0, 26, 0)  # from here windows reserve for every batch in flight
DEFAULT_BLOCK, LATENT_BLOCK = 16, 64


class Vllm(EngineRecord):
    """Paged blocks; hybrid models share one pool between groups of layers."""

    kind: Literal["vllm"] = "vllm"

    version: str = "0.20.2"
    """vLLM version whose rules apply."""

    kernel_block_tokens: int | None = Field(default=None, ge=1)
    """Smallest block the attention kernel takes; empty: 16, or 64 for latents."""

    max_batched_tokens: int = Field(default=8192, ge=1)
    """Tokens scheduled in one step (max_num_batched_tokens); windows reserve room for them."""

    max_seqs: int | None = Field(default=None, ge=1)
    """Requests that may run at once (max_num_seqs); each needs a block for its state."""

    speculative_tokens: int = Field(default=0, ge=0, le=1024)
    """Draft tokens per step; the model's own draft layers then store KV too."""

    prefix_caching: Literal["none", "align", "all"] = "none"
    """How states are kept for prefix reuse: not, at block boundaries (align), or at every block (all)."""

    hybrid_manager: bool = True
    """False: windows are kept in full (some KV connectors switch the hybrid manager off)."""

    concurrent_batches: int | None = Field(default=None, ge=1)
    """Batches in flight at once; empty: 1, and with versions from 0.26 2 (or the pipeline stages)."""

    def layout(self, llm: Model, parallel: Parallel = Parallel(), max_model_len: int | None = None) -> Layout:
        """Groups of layers and bytes of a block on one rank."""
        divisible_heads(llm, parallel.attention_tp, "vllm")
        grows = any("kv_heads" in vars(group) for group in llm.attention) or llm.growing_bytes_per_token
        length = 1 if grows else request_length(llm, max_model_len)  # a block of states alone is a whole request
        draft = llm.draft_attention if self.speculative_tokens else ()
        return _layout(
            (llm.attention, draft),
            llm.depth,
            llm.precision,
            parallel.attention_tp,
            parallel.pp,
            self.block_tokens,
            self.kernel_block_tokens,
            self.speculative_tokens,
            self.hybrid_manager,
            version_number(self.version, NEWEST),
            length,
        )

    def blocks_for(self, layout: Layout, tokens: Any, parallel: Parallel = Parallel()) -> Any:
        """Blocks one running request of `tokens` may need at most, over all groups; an array like tokens."""
        tokens, flight = np.asarray(tokens, float), self._tokens_in_flight(parallel)
        return sum(self._group_blocks(group, tokens, flight, parallel.dcp) for group in layout.groups)

    def _group_blocks(self, group: Group, tokens: Any, flight: int, dcp: int) -> Any:
        if group.role == "tokens":
            return np.ceil(np.ceil(tokens / dcp) / group.block)
        if group.role == "window":
            return np.ceil(np.minimum(group.limit - 1 + flight, tokens) / group.block) + 1
        if group.role == "chunk":
            return np.ceil(np.minimum(group.limit + flight, tokens) / group.block)
        if group.role == "encoder":
            return np.full_like(tokens, math.ceil(group.limit / group.block))
        if self.prefix_caching == "all":
            return np.ceil(tokens / group.block)
        return np.full_like(tokens, (2 if self.prefix_caching == "align" else 1) + self.speculative_tokens)

    def _tokens_in_flight(self, parallel: Parallel) -> int:
        batches = self.concurrent_batches
        if batches is None:
            newer = version_number(self.version, NEWEST) >= CONCURRENT_BATCHES
            batches = max(2, parallel.pp) if newer else 1
        return batches * self.max_batched_tokens

    def required_bytes(self, llm: Model, tokens: Any, parallel: Parallel = Parallel()) -> Any:
        """Bytes the start-up check asks for to serve one request of `tokens`: over all stages' layers [B].

        Pipeline stages are not told apart by the check: it uses the whole model's groups.
        """
        layout = self.layout(llm, parallel._replace(pp=1), int(np.max(tokens)))
        return self.blocks_for(layout, tokens, parallel) * layout.block_bytes

    def longest_request(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), limit: int | None = None
    ) -> int:
        """Largest request that fits a pool of `memory` bytes on one rank [tokens]."""
        low, high = 0, request_length(llm, limit)
        layout = self.layout(llm, parallel._replace(pp=1), high)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.blocks_for(layout, middle, parallel) * layout.block_bytes <= memory
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def pool(
        self, llm: Model, memory: float, parallel: Parallel = Parallel(), max_model_len: int | None = None
    ) -> Pool:
        check_memory(memory)
        length = request_length(llm, max_model_len)
        layout = self.layout(llm, parallel, length)
        if parallel.dcp > 1 and any(group.role in ("window", "chunk") for group in layout.groups):
            raise UnsupportedModelError("vllm: decode context parallelism does not support windowed layers")
        return self.pool_of(llm, int(memory // layout.block_bytes), layout, parallel, length)

    def pool_of(self, llm: Model, blocks: int, layout: Layout, parallel: Parallel, length: int) -> Pool:
        """The pool of a given number of blocks."""
        needed = float(self.blocks_for(layout, length, parallel))
        concurrency = blocks / needed
        states = any(group.role == "state" for group in layout.groups)
        if states and self.max_seqs is not None and blocks < self.max_seqs:
            raise KvmodelError(f"vllm refuses to start: max_seqs {self.max_seqs} exceeds the {blocks} blocks of states")
        if version_number(self.version, NEWEST) >= TOKENS_BY_CONCURRENCY:
            tokens = int(concurrency * length)
        else:
            tokens = blocks // len(layout.groups) * layout.smallest_block * parallel.dcp
        held = self._held_bytes(llm, length, parallel)
        return Pool(
            self._shown_block(layout),
            layout.block_bytes,
            blocks,
            tokens,
            concurrency,
            wasted(blocks * layout.block_bytes, concurrency, held),
            layout.reuse_block * parallel.dcp,
            rules_of("vllm", self.version, OLDEST, NEWEST),
        )

    def _held_bytes(self, llm: Model, length: int, parallel: Parallel) -> float:
        """KV bytes of a request on one rank as the model defines them."""
        held = llm.rank_sequence_bytes(length, parallel.attention_tp)
        if parallel.dcp > 1:  # only what grows is spread over these ranks
            held = held - llm.rank_growing_bytes_per_token(parallel.attention_tp) * length * (1 - 1 / parallel.dcp)
        return float(held) / parallel.pp

    @staticmethod
    def _shown_block(layout: Layout) -> int:
        """The block an engine prints: that of the layers that keep every token, else the smallest."""
        return min((g.block for g in layout.groups if g.role == "tokens"), default=layout.smallest_block)

    def _granularity(self, llm: Model, tp: int) -> int:
        return self.layout(llm, Parallel(tp)).reuse_block

    def _stored(self, llm: Model, tokens: Any, tp: int) -> Any:
        layout = self.layout(llm, Parallel(tp))
        blocks = sum(self._resting_blocks(group, tokens) for group in layout.groups)
        return np.where(tokens > 0, blocks, 0) * layout.block_bytes

    @staticmethod
    def _resting_blocks(group: Group, tokens: Any) -> Any:
        """Blocks of a sequence at rest: whole prefix, blocks that still touch the window, one state."""
        if group.role == "tokens":
            return np.ceil(tokens / group.block)
        if group.role in ("window", "chunk"):
            return np.minimum(np.ceil(tokens / group.block), np.ceil(group.limit / group.block) + 1)
        if group.role == "encoder":
            return np.full_like(tokens, math.ceil(group.limit / group.block))
        return np.ones_like(tokens)


@lru_cache(maxsize=512)
def _layout(
    groups: tuple[tuple[Any, ...], tuple[Any, ...]],
    depth: int,
    precision: Precision,
    ranks: int,
    pp: int,
    block: int | None,
    kernel_block: int | None,
    draft_tokens: int,
    hybrid: bool,
    version: tuple[int, int, int],
    sequence_block: int,
) -> Layout:
    """Layout of a model's layers and its draft's; kept, because one plan asks for the same one many times."""
    own, draft = groups
    latent = any(group.kind == "latent" for group in own)
    if latent:  # the index cache of sparse MLA is always the fp8 layout
        precision = precision._replace(index="fp8")
    stored = [s for group in own for s in group.storage(precision, ranks, draft_tokens)]
    # the draft's layers follow the model's last one
    stored += [
        s._replace(positions=tuple(depth + i for i in range(s.layers)))
        for group in draft
        for s in group.storage(precision, ranks)
    ]
    default = LATENT_BLOCK if latent else DEFAULT_BLOCK
    return build(
        stored,
        block or default,
        kernel_block or default,
        depth,
        pp,
        hybrid=hybrid and version >= HYBRID_MANAGER,
        pads=version >= PADS_PAGES,
        sequence_block=sequence_block,
    )
