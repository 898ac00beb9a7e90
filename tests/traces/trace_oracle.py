"""Slow, plain answers to what the trace code answers fast: block by block, with an ordered dict and lists."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

Requests = list[list[int]]


def write_jsonl(path: Path, requests: Requests, *, block_tokens: int = 4, lengths=None, times=None) -> Path:
    """The requests as Mooncake rows, one per second unless times [ms] are given."""
    with open(path, "w") as file:
        for k, ids in enumerate(requests):
            row = {
                "timestamp": times[k] if times else 1000 * k,
                "input_length": lengths[k] if lengths else len(ids) * block_tokens,
                "output_length": 1,
                "hash_ids": ids,
                "block_tokens": block_tokens,
            }
            file.write(json.dumps(row) + "\n")
    return path


def lru_hits(requests: Requests, capacity: int) -> int:
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for ids in requests:
        for block in ids:
            hits += block in cache
            _touch(cache, block, capacity)
    return hits


def prefix_lru(requests: Requests, capacity: int, lengths, block_tokens: int, *, last_to_first: bool):
    """(leading blocks, their tokens, resident blocks): whole request looked up, then touched in either
    order.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    blocks = tokens = anywhere = 0
    for ids, length in zip(requests, lengths, strict=True):
        held = [block in cache for block in ids]
        leading = held.index(False) if False in held else len(held)
        blocks += leading
        tokens += min(leading * block_tokens, length)
        anywhere += sum(held)
        for block in reversed(ids) if last_to_first else ids:
            _touch(cache, block, capacity)
    return blocks, tokens, anywhere


def belady_hits(requests: Requests, capacity: int) -> int:
    stream = [block for ids in requests for block in ids]
    following, last = [0] * len(stream), {}
    for place in range(len(stream) - 1, -1, -1):
        following[place] = last.get(stream[place], len(stream))
        last[stream[place]] = place
    cache: dict[int, int] = {}
    hits = 0
    for block, next_use in zip(stream, following, strict=True):
        if block in cache:
            hits += 1
        elif len(cache) >= capacity:
            del cache[max(cache, key=cache.__getitem__)]
        cache[block] = next_use
    return hits


def ttl_hits(requests: Requests, times, ttl) -> int:
    last: dict[int, int] = {}
    hits = 0
    for ids, time in zip(requests, times, strict=True):
        for block in ids:
            hits += block in last and time - last[block] <= ttl
            last[block] = time
    return hits


def working_set(requests: Requests, times, window: int):
    """(time mean from `window` to the end or None, largest right after a request), by stepping through
    whole times.
    """

    def held(after: int, until: int) -> int:
        return len({b for ids, t in zip(requests, times, strict=True) if after < t <= until for b in ids})

    largest = max(held(t - window, t) for t in times)
    end = times[-1]
    if window >= end:
        return None, largest
    return sum(held(t - window, t) for t in range(window, end)) / (end - window), largest


def _touch(cache: OrderedDict[int, None], block: int, capacity: int) -> None:
    cache[block] = None
    cache.move_to_end(block)
    if len(cache) > capacity:
        cache.popitem(last=False)
