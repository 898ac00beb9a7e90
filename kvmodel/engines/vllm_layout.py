"""How vLLM cuts a model's layers into groups that share one pool of blocks.

All layers of a group use the same block table, and one block of any group has the same bytes. So pages of
different kinds of layer are made equal (larger blocks, padding), and kinds with many layers are cut into
several groups of as many layers as the smallest kind has. Sources: vLLM's allocator, 0.11 to 0.33.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kvmodel.errors import UnsupportedModelError
from kvmodel.formulas.kv_size import Storage

BOUNDED = ("window", "chunk")


class Group(NamedTuple):
    """Layers under one block table."""

    role: str
    limit: int
    block: int  # tokens of a block
    positions: tuple[int, ...]


class Kind(NamedTuple):
    """One type of layer as the allocator sees it."""

    role: str
    limit: int
    row_bytes: float
    block: int
    page: float  # bytes of a block in one layer
    positions: tuple[int, ...]


class Layout(NamedTuple):
    """The groups, and the bytes of one block over the layers of each pipeline stage."""

    groups: tuple[Group, ...]
    stage_block_bytes: tuple[float, ...]

    @property
    def block_bytes(self) -> float:
        """Bytes of a block on the fullest stage."""
        return max(self.stage_block_bytes)

    @property
    def smallest_block(self) -> int:
        return min(group.block for group in self.groups)

    @property
    def reuse_block(self) -> int:
        """Tokens at which all groups that hold whole prefixes have a block boundary."""
        return math.lcm(
            *(g.block for g in self.groups if g.role in ("tokens", "window", "chunk")),
            *(g.block for g in self.groups if g.role == "state"),
        )


def build(
    stored: Iterable[Storage],
    block: int,
    kernel_block: int,
    layers: int,
    pp: int = 1,
    *,
    hybrid: bool = True,
    pads: bool = True,
    sequence_block: int = 1,
) -> Layout:
    """Layout of what the layers store.

    block           configured tokens of a block
    kernel_block    smallest block the attention kernel takes; raised blocks are multiples of it
    layers          layers of the model, for pipeline stages
    hybrid          False: windows are kept in full
    pads            pages that do not divide are padded; otherwise the engine refuses to start
    sequence_block  block of a model with states only: a sequence
    """
    stored = [_kept_in_full(s) if not hybrid and s.role in BOUNDED else s for s in stored if s.row_bytes]
    if any(s.page_multiple for s in stored):
        return _packed(stored, layers, pp)
    states = [s for s in stored if s.role == "state"]
    attention = [s for s in stored if s.role != "state"]
    if states and attention:
        block = raised_block(states, attention, block, kernel_block)
    elif states:
        block = sequence_block
    kinds = _merge(_kind(s, block) for s in stored)
    if all(k.role == "tokens" for k in kinds) or len({(k.role, k.limit, k.block) for k in kinds}) == 1:
        group = Group(kinds[0].role, kinds[0].limit, kinds[0].block, _positions(kinds))
        stage_bytes = [0.0] * pp
        for kind in kinds:
            for position in kind.positions:
                stage_bytes[stage_of(position, layers, pp)] += kind.page
        return Layout((group,), tuple(stage_bytes))
    kinds = _equal_pages(kinds, pads)
    return _grouped(kinds, layers, pp)


def raised_block(states: list[Storage], attention: list[Storage], block: int, kernel_block: int) -> int:
    """Attention block raised until its page reaches the largest state:  align · ⌈state / (align · row)⌉."""
    rows = {s.row_bytes for s in attention if s.role == "tokens"}
    if len(rows) != 1:
        raise UnsupportedModelError(
            "vllm: states beside attention layers of several row sizes "
            f"({', '.join(f'{row:g}' for row in sorted(rows))} B per token and layer) "
            "are not modelled"
        )
    row, state = rows.pop(), max(s.row_bytes for s in states)
    return max(block, kernel_block * math.ceil(state / (kernel_block * row)))


def group_size(counts: list[int]) -> int:
    """Layers per group: the smallest count, or the largest when it is below 1.5 times that."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def _kept_in_full(stored: Storage) -> Storage:
    return stored._replace(role="tokens", limit=0)


def _kind(stored: Storage, block: int) -> Kind:
    block = stored.block or block
    page = stored.row_bytes if stored.role == "state" else block * stored.row_bytes
    if stored.page_multiple:
        page = stored.page_multiple * math.ceil(page / stored.page_multiple)
    positions = stored.positions or tuple(range(stored.layers))
    return Kind(stored.role, stored.limit, stored.row_bytes, block, page, positions)


def _merge(kinds: Iterable[Kind]) -> list[Kind]:
    """Kinds that differ only in which layers they stand at, together."""
    merged: dict[Kind, tuple[int, ...]] = {}
    for kind in kinds:
        shape = kind._replace(positions=())
        merged[shape] = (*merged.get(shape, ()), *kind.positions)
    return [shape._replace(positions=tuple(sorted(at))) for shape, at in merged.items()]


def _positions(kinds: Iterable[Kind]) -> tuple[int, ...]:
    return tuple(position for kind in kinds for position in kind.positions)


def _equal_pages(kinds: list[Kind], pads: bool) -> list[Kind]:
    """Smaller pages get proportionally larger blocks; states are padded; what does not divide is padded or refused."""
    largest = max(kind.page for kind in kinds)
    result = []
    for kind in kinds:
        if kind.role == "state":
            result.append(kind._replace(page=largest))
            continue
        times, rest = divmod(largest, kind.page)
        if rest and not pads:
            raise UnsupportedModelError(
                f"vllm: pages of {kind.page:.0f} B and {largest:.0f} B per layer do not divide; this version refuses "
                "to start (versions that pad or pack pages do not)"
            )
        result.append(kind._replace(block=kind.block * int(times), page=largest))
    return result


def _grouped(kinds: list[Kind], layers: int, pp: int) -> Layout:
    kinds = _merge(kinds)
    size = group_size([len(kind.positions) for kind in kinds])
    groups = []
    for kind in kinds:
        number = math.ceil(len(kind.positions) / size)
        groups += [Group(kind.role, kind.limit, kind.block, kind.positions[i::number]) for i in range(number)]
    page = kinds[0].page
    stages = [max(_on_stage(group.positions, layers, pp, stage) for group in groups) * page for stage in range(pp)]
    return Layout(tuple(groups), tuple(stages))


def _packed(stored: list[Storage], layers: int, pp: int) -> Layout:
    """DeepSeek-V4: pages of several sizes side by side in a block, every group with as many layers of each.

    Whole-prefix layers are one group. Windows are grouped by block and length, their pages padded to the
    next size the first group has; each group has as many "tuples" as its most frequent page size, and all
    are cut or padded to the number of tuples that pads least.
    """
    if pp > 1:
        raise UnsupportedModelError("vllm: pipeline parallelism of compressed attention is not modelled")
    kinds = _merge(_kind(s, s.block) for s in stored)
    whole = [k for k in kinds if k.role == "tokens"]
    if not whole:
        raise UnsupportedModelError("vllm: compressed attention without compressed layers is not modelled")
    sizes = sorted({k.page for k in whole})
    by_window: dict[tuple[int, int], list[Kind]] = {}
    for kind in kinds:
        if kind.role == "window":
            page = next((size for size in sizes if size >= kind.page), kind.page)
            by_window.setdefault((kind.block, kind.limit), []).append(kind._replace(page=page))
    families = [whole, *by_window.values()]
    tuples = [_tuples(family) for family in families]
    best = min(range(tuples[0], max(tuples) + 1), key=lambda d: (sum(-t % d for t in tuples), d))
    groups = [
        Group(family[0].role, family[0].limit, family[0].block, _positions(family)[i::number])
        for family, count in zip(families, tuples, strict=True)
        for number in [math.ceil(count / best)]
        for i in range(number)
    ]
    return Layout(tuple(groups), (best * sum({k.page for family in families for k in family}),))


def _tuples(family: list[Kind]) -> int:
    """Layers of the most frequent page size."""
    counts: dict[float, int] = {}
    for kind in family:
        counts[kind.page] = counts.get(kind.page, 0) + len(kind.positions)
    return max(counts.values())


def _on_stage(positions: tuple[int, ...], layers: int, pp: int, stage: int) -> int:
    return len(positions) if pp == 1 else sum(stage_of(position, layers, pp) == stage for position in positions)


def stage_of(position: int, layers: int, pp: int) -> int:
    """Pipeline stage of a layer: equal stages, the remainder to the later ones but the last."""
    if pp == 1:
        return 0
    share, rest = divmod(layers, pp)
    sizes = [share] * pp
    for i in range(2, rest + 2):
        sizes[-i] += 1
    end = 0
    for stage, size in enumerate(sizes):
        end += size
        if position < end:
            return stage
    return pp - 1  # draft layers follow the last one
