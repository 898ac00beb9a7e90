"""CPU time of the exact LRU curve against libCacheSim's Python package at eight capacities (not a test: run by hand).

    pip install libcachesim
    python -m tests.traces.benchmark_curves TRACE

Prints both times, their ratio, the memory peak before libCacheSim starts, and the largest difference of hit ratios.
"""

from __future__ import annotations

import resource
import struct
import sys
import tempfile
import time

import numpy as np

from kvmodel.traces import Trace, read_trace
from kvmodel.traces.hit_curve import lru_curve
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.stack_distance import stack_distances

CAPACITIES = np.array([1000, 3000, 10_000, 30_000, 50_000, 100_000, 200_000, 300_000])


def write_blocks(trace: Trace, path: str) -> None:
    """Every block access as libCacheSim's oracleGeneral record (time, id, size 1, next access unknown)."""
    with open(path, "wb") as file:
        for start, count in zip(trace.range_start.tolist(), trace.range_count.tolist(), strict=True):
            file.write(b"".join(struct.pack("<IQIq", 0, block, 1, -2) for block in range(start, start + count)))


def libcachesim_hit_ratios(path: str) -> np.ndarray:
    import libcachesim

    kind = libcachesim.TraceType.ORACLE_GENERAL_TRACE
    caches = [libcachesim.LRU(capacity) for capacity in CAPACITIES.tolist()]
    return 1 - np.array([cache.process_trace(libcachesim.TraceReader(path, kind))[0] for cache in caches])


def main(path: str) -> None:
    start = time.process_time()
    trace = read_trace(path)
    stream = run_stream(trace)
    ours = lru_curve(stream, stack_distances(stream)).ratio_at(CAPACITIES)
    our_time = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"full exact curve from the file: {our_time:.2f} s CPU, peak {peak:.0f} MB")

    with tempfile.TemporaryDirectory() as folder:
        blocks = f"{folder}/blocks.oracleGeneral.bin"
        write_blocks(trace, blocks)
        start = time.process_time()
        theirs = libcachesim_hit_ratios(blocks)
        their_time = time.process_time() - start
    print(f"libCacheSim at {len(CAPACITIES)} capacities: {their_time:.2f} s CPU, without parsing the trace")
    print(f"ratio {their_time / our_time:.0f}, largest difference {np.max(np.abs(ours - theirs)):.1e}")


if __name__ == "__main__":
    main(sys.argv[1])
