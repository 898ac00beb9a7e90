"""Transfer laws: limits, chunk-by-chunk counting, one published series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import transfer

SECONDS = st.floats(0, 100)
SHARES = st.floats(0, 1)


def test_by_hand():
    said = transfer.transfer_seconds(
        100.0, latency=1.0, bandwidth=50.0, copies=4, seconds_per_copy=0.5, conversion_seconds_per_byte=0.01
    )
    assert said == 1 + 2 + 2 + 1


def test_nothing_and_no_bandwidth():
    terms = dict(latency=0.5, bandwidth=np.array([0.0, 10.0, np.inf]))
    assert transfer.transfer_seconds(0.0, **terms).tolist() == [0.5, 0.5, 0.5]
    assert transfer.transfer_seconds(20.0, **terms).tolist() == [np.inf, 2.5, 0.5]
    assert transfer.effective_bandwidth([0.0, np.inf], bandwidth=10.0, seconds_per_copy=1.0).tolist() == [
        0,
        10,
    ]
    assert transfer.queue_limited_bandwidth(bandwidth=5.0, latency=0.0, operation_bytes=1, queue_depth=1) == 5


def test_small_copies_of_a_published_series():
    """vLLM blog, 8 January 2026, figure 3: DMA copies to an H100 over PCIe 5, 51.2 GB/s for large blocks.

    One cost per copy, taken from the 4 KiB point (1.12 GB/s, +-0.3), tells the others within the digitising
    error.
    """
    size = np.array([8, 32, 64, 128, 512, 1024, 2048]) * 1024.0
    measured = np.array([2.33, 7.5, 14.44, 22.78, 39.51, 44.37, 48.06]) * 1e9
    said = transfer.effective_bandwidth(size, bandwidth=51.2e9, seconds_per_copy=4096 / 1.12e9 - 4096 / 51.2e9)
    assert np.mean(np.abs(said / measured - 1)) < 0.10


@given(size=st.integers(1, 10**9), bandwidth=st.floats(1, 1e12), cost=st.floats(0, 1))
def test_small_copy_law_is_the_transfer_law(size, bandwidth, cost):
    seconds = transfer.transfer_seconds(
        7 * size,
        latency=0,
        bandwidth=bandwidth,
        copies=transfer.copy_count(7 * size, copy_bytes=size),
        seconds_per_copy=cost,
    )
    rate = transfer.effective_bandwidth(size, bandwidth=bandwidth, seconds_per_copy=cost)
    assert 7 * size / seconds == pytest.approx(rate)


def test_copies_are_split_at_the_largest_transfer():
    count = transfer.copy_count(10.0, copy_bytes=4.0, largest_transfer=np.array([np.inf, 4.0, 3.0, 1.0]))
    assert count.tolist() == [3, 3, 6, 12]
    assert transfer.copy_count(0.0, copy_bytes=4.0) == 0
    assert transfer.blocking_seconds(largest_transfer=[0.0, 8.0], bandwidth=4.0).tolist() == [0, 2]


@given(chunks=st.integers(1, 30), bandwidth=st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
def test_pipeline_against_passing_chunks_one_by_one(chunks, bandwidth):
    hops = np.array(bandwidth)
    free = np.zeros(len(hops))  # when each hop has passed its last chunk
    for _ in range(chunks):
        ready = 0.0
        for h, rate in enumerate(hops):
            ready = free[h] = max(ready, free[h]) + 1 / rate
    said = transfer.pipelined_seconds(float(chunks), chunk_bytes=1.0, latency=np.zeros(len(hops)), bandwidth=hops)
    assert said == pytest.approx(free[-1])


@given(
    nbytes=st.floats(0, 1e3),
    chunk=st.floats(1e-3, 1e4),
    bandwidth=st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
)
def test_pipelining_lies_between_the_slowest_hop_and_the_sum(nbytes, chunk, bandwidth):
    hops = dict(latency=np.full(len(bandwidth), 0.5), bandwidth=np.array(bandwidth))
    said = transfer.pipelined_seconds(nbytes, chunk_bytes=chunk, **hops)
    assert said <= transfer.store_and_forward_seconds(nbytes, **hops) * (1 + 1e-12)
    assert said >= nbytes / min(bandwidth)
    assert transfer.pipelined_seconds(nbytes, chunk_bytes=np.inf, **hops) == pytest.approx(
        transfer.store_and_forward_seconds(nbytes, **hops)
    )


@given(t=SECONDS, c=SECONDS, hidden=SHARES, layers=st.integers(1, 100))
def test_overlap(t, c, hidden, layers):
    left = transfer.unhidden_seconds(t, c, hidden)
    assert max(t - c, 0) - 1e-9 <= left <= t
    assert transfer.unhidden_seconds(t, c, 0) == t
    total = transfer.layerwise_seconds(t, c, layers)
    assert total == pytest.approx(c + transfer.unhidden_seconds(t, c, 1 - 1 / layers), abs=1e-9)
    assert transfer.layerwise_seconds(t, c, 1) == pytest.approx(t + c)
    # layer by layer: loaded in turn, each computed once it is loaded and the one before is done
    done = 0.0
    for i in range(layers):
        done = max((i + 1) * t / layers, done) + c / layers
    assert total == pytest.approx(done, abs=1e-9)


def test_path_and_shards():
    assert transfer.path_bandwidth(bandwidth=np.array([64.0, 50.0]), sharers=np.array([4.0, 1.0])) == 16
    assert transfer.all_shards_seconds([[1.0, 5.0], [3.0, 2.0]]).tolist() == [3, 5]


@given(bandwidth=st.floats(1, 1e11), ratio=st.floats(1, 10), decoder=st.floats(1, 1e12))
def test_compression(bandwidth, ratio, decoder):
    terms = dict(bandwidth=bandwidth, ratio=ratio, decode_rate=decoder)
    serial, piped = transfer.compressed_bandwidth(**terms, pipelined=np.array([False, True]))
    assert serial <= piped <= bandwidth * ratio and piped <= decoder
    assert transfer.compressed_bandwidth(bandwidth=bandwidth, ratio=1.0, decode_rate=np.inf) == bandwidth


@given(depth=st.floats(1, 1e3), latency=st.floats(1e-6, 1e-2), size=st.floats(1, 1e7))
def test_depth_and_bandwidth_invert_each_other(depth, latency, size):
    rate = transfer.queue_limited_bandwidth(bandwidth=np.inf, latency=latency, operation_bytes=size, queue_depth=depth)
    assert transfer.queue_depth(bandwidth=rate, latency=latency, operation_bytes=size) == pytest.approx(depth)


def test_arrays_equal_scalars():
    size, bandwidth = np.array([[0.0], [10.0]]), np.array([0.0, 5.0, np.inf])
    whole = transfer.transfer_seconds(size, latency=0.1, bandwidth=bandwidth)
    for (r, c), value in np.ndenumerate(whole):
        assert value == transfer.transfer_seconds(size[r, 0], latency=0.1, bandwidth=bandwidth[c])
