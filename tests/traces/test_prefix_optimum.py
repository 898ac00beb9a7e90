"""What no prefix cache can pass: all sets of blocks tried, on tiny traces, against LRU and Belady's rule."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces import trace_oracle as oracle

Path = tuple[int, ...]
TREES = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=2, max_size=6)


def blocks_of(branch: list[int]) -> list[Path]:
    """A block is named by the way to it from the root."""
    return [tuple(branch[: k + 1]) for k in range(len(branch))]


def closed(cache: frozenset[Path]) -> bool:
    return all(len(block) == 1 or block[:-1] in cache for block in cache)


def optimum(branches: list[list[int]], capacity: int, prefix_closed: bool) -> int:
    """Most blocks found if a request is looked up at once and any of the cache and its blocks may be kept: dynamic
    programming over all caches, or all that hold no block without those before it."""
    best = {frozenset(): 0}
    for branch in branches:
        request = blocks_of(branch)
        after: dict[frozenset[Path], int] = {}
        for cache, found in best.items():
            held = [block in cache for block in request]
            leading = held.index(False) if False in held else len(held)
            hits = found + (leading if prefix_closed else sum(held))
            known = cache | set(request)
            for size in range(min(capacity, len(known)) + 1):
                for kept in map(frozenset, combinations(sorted(known), size)):
                    if not prefix_closed or closed(kept):
                        after[kept] = max(after.get(kept, 0), hits)
        best = after
    return max(best.values())


def numbered(branches: list[list[int]]) -> list[list[int]]:
    names: dict[Path, int] = {}
    return [[names.setdefault(block, len(names)) for block in blocks_of(branch)] for branch in branches]


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(1, 3))
def test_the_optimum_is_prefix_closed_by_itself_and_belady_is_within_a_block_of_it(branches, capacity):
    """A request for a block is one for all before it, so heads are used again no later than what follows them: keeping
    what is used next keeps prefixes whole. Belady's rule must admit each block it touches, which costs it a place."""
    strict = optimum(branches, capacity, prefix_closed=True)
    assert strict == optimum(branches, capacity, prefix_closed=False)
    requests = numbered(branches)
    lengths = [len(request) for request in requests]
    for last_to_first in (True, False):
        assert oracle.prefix_lru(requests, capacity, lengths, 1, last_to_first=last_to_first)[0] <= strict
    assert oracle.belady_hits(requests, capacity) <= strict <= oracle.belady_hits(requests, capacity + 1)


def test_a_rule_that_may_leave_blocks_out_can_find_more_than_belady():
    """Two blocks in turn and room for one: tails first, the head stays; what admits every block finds nothing."""
    requests = [[0, 1]] * 4
    assert oracle.prefix_lru(requests, 1, [2] * 4, 1, last_to_first=True)[0] == 3
    assert oracle.belady_hits(requests, 1) == 0 and oracle.belady_hits(requests, 2) == 6
    assert optimum([[0, 0]] * 4, 1, prefix_closed=True) == 3
