"""Tokens per block of a trace, from what it says or from what its lengths allow."""

from __future__ import annotations

import numpy as np

from kvmodel.traces.columns import Trace


def block_token_bounds(trace: Trace) -> list[tuple[int, int]]:
    """Block sizes [tokens] (lowest, highest) under which every request has as many blocks as its length asks
    for, once if a partial last block is listed (ceil) and once if only full blocks are (floor); empty ones
    are left out.

    From ceil(L/B) = n follows L/n <= B < L/(n-1); from floor(L/B) = n follows L/(n+1) < B <= L/n. Derived
    here.
    """
    n, tokens = _filled(trace)
    if len(n) == 0:
        return []
    highest = int(np.iinfo(np.int64).max)
    many = n > 1
    ceil = (int(np.max(-(-tokens // n))), int(np.min((tokens[many] - 1) // (n[many] - 1), initial=highest)))
    floor = (int(np.max(tokens // (n + 1))) + 1, int(np.min(tokens // n)))
    return [(low, high) for low, high in (ceil, floor) if 1 <= low <= high]


def inferred_block_tokens(trace: Trace) -> int | None:
    """The block size the lengths leave no choice about: the only whole number, or the only power of two;
    else None.
    """
    found = set()
    for low, high in block_token_bounds(trace):
        powers = [2**k for k in range(40) if low <= 2**k <= high]
        if low == high:
            found.add(low)
        elif len(powers) == 1:
            found.add(powers[0])
        elif powers:
            return None
    return found.pop() if len(found) == 1 else None


def consistent_block_tokens(trace: Trace, block_tokens: int) -> bool:
    """Whether every request lists as many blocks as its length asks for, either way of counting the last
    one.
    """
    return len(_filled(trace)[0]) == 0 or any(low <= block_tokens <= high for low, high in block_token_bounds(trace))


def _filled(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Blocks and input tokens of the requests that have both."""
    blocks, length = trace.blocks, trace.input_tokens
    filled = (blocks > 0) & (length > 0)
    return blocks[filled], length[filled]
