"""How long does it take to bring KV bytes from a tier to where the GPU can use them?

A transfer costs a fixed latency, a cost per copy or operation, and its bytes over the effective bandwidth of
the whole path. Small copies are far below line rate because the per-copy cost dominates; software, not the
wire, often sets the bandwidth, so each path needs its own effective figure. Waiting behind other transfers is
in :mod:`kvmodel.formulas.queueing`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "all_shards_seconds",
    "blocking_seconds",
    "compressed_bandwidth",
    "copy_count",
    "effective_bandwidth",
    "layerwise_seconds",
    "path_bandwidth",
    "pipelined_seconds",
    "queue_depth",
    "queue_limited_bandwidth",
    "store_and_forward_seconds",
    "transfer_seconds",
    "unhidden_seconds",
]


def transfer_seconds(
    nbytes: ArrayLike,
    *,
    latency: ArrayLike,
    bandwidth: ArrayLike,
    copies: ArrayLike = 0.0,
    seconds_per_copy: ArrayLike = 0.0,
    conversion_seconds_per_byte: ArrayLike = 0.0,
) -> NDArray:
    """Time of one transfer on an idle path.

        t = latency + copies * seconds_per_copy + bytes / bandwidth + bytes * conversion

    nbytes: what the path moves, copies on every rank included [bytes]; latency: look-up, set-up and restore,
    paid once [s]; bandwidth: effective, of the whole path [B/s]; copies: operations issued one after another
    [1]; seconds_per_copy [s]; conversion_seconds_per_byte: layout change, decompression, when not overlapped
    [s/B]. No bytes cost the latency (and copies) only, even over a path of zero bandwidth; bytes over zero
    bandwidth give inf; infinite bandwidth leaves the fixed parts. Source: method.md section 2.4.
    """
    size = np.asarray(nbytes, float)
    return (
        latency
        + copies * np.asarray(seconds_per_copy, float)
        + _wire(size, bandwidth)
        + size * conversion_seconds_per_byte
    )


def _wire(nbytes: ArrayLike, bandwidth: ArrayLike) -> NDArray:
    """Bytes over bandwidth, where no bytes take no time whatever the bandwidth (0/0 is 0)."""
    size = np.asarray(nbytes, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size == 0, 0.0, size / bandwidth)


def effective_bandwidth(copy_bytes: ArrayLike, *, bandwidth: ArrayLike, seconds_per_copy: ArrayLike) -> NDArray:
    """Throughput of many copies of one size, issued one after another: the small-copy law [B/s].

        B(s) = s / (seconds_per_copy + s / bandwidth)

    Half of the bandwidth is reached at s = seconds_per_copy * bandwidth. copy_bytes [bytes], bandwidth [B/s],
    seconds_per_copy [s]. s -> 0 gives 0, s -> inf gives the bandwidth. Source: method.md section 2.4 (4 KB at
    about 1 GB/s where 2 MB reaches 48).
    """
    size = np.asarray(copy_bytes, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            size == 0,
            0.0,
            1.0 / (np.asarray(seconds_per_copy, float) / size + 1.0 / np.asarray(bandwidth, float)),
        )


def copy_count(nbytes: ArrayLike, *, copy_bytes: ArrayLike, largest_transfer: ArrayLike = np.inf) -> NDArray:
    """Operations needed to move the bytes: contiguous pieces, each split at the largest transfer.

        N = bytes / copy * ceil(copy / min(copy, largest))

    nbytes [bytes]; copy_bytes: contiguous piece (block of one layer, or a chunk) [bytes]; largest_transfer
    (MDTS) [bytes], inf when unlimited. A part of a piece is a whole operation. No bytes need none.
    """
    size = np.asarray(nbytes, float)
    per_piece = np.ceil(np.asarray(copy_bytes, float) / np.minimum(copy_bytes, largest_transfer))
    return np.ceil(size / copy_bytes) * per_piece


def blocking_seconds(*, largest_transfer: ArrayLike, bandwidth: ArrayLike) -> NDArray:
    """Longest time an urgent operation waits for one already started: largest transfer / bandwidth [s].

    The other side of large operations: few of them cost little CPU, but each blocks the device while it runs.
    largest_transfer [bytes], bandwidth [B/s]. Zero bytes block nothing.
    """
    return _wire(largest_transfer, bandwidth)


def path_bandwidth(*, bandwidth: ArrayLike, sharers: ArrayLike = 1.0) -> NDArray:
    """Bandwidth left to one flow on a path: the smallest over its segments of bandwidth / sharers [B/s].

    bandwidth [B/s] and sharers (equal flows on that segment) [1] carry one leading axis, one entry per
    segment.
    """
    return np.min(np.asarray(bandwidth, float) / sharers, axis=0)


def store_and_forward_seconds(nbytes: ArrayLike, *, latency: ArrayLike, bandwidth: ArrayLike) -> NDArray:
    """Transfer over several hops, each holding all bytes before the next starts: sum of the hops' times [s].

    latency [s] and bandwidth [B/s] carry one leading axis, one entry per hop; nbytes [bytes] has none.
    """
    return np.sum(latency + _wire(nbytes, bandwidth), axis=0)


def pipelined_seconds(
    nbytes: ArrayLike, *, chunk_bytes: ArrayLike, latency: ArrayLike, bandwidth: ArrayLike
) -> NDArray:
    """Transfer over several hops that pass chunks on as they arrive.

        t = sum latency + chunk sum_h 1/B_h + (bytes - chunk) / min_h B_h

    the slowest hop carries all bytes, every other one adds one chunk. chunk >= bytes is store and forward;
    chunk -> 0 leaves bytes / min B. nbytes, chunk_bytes [bytes] have no hop axis; latency [s] and bandwidth
    [B/s] carry one leading axis. Exact for equal chunks and constant rates; no bytes cost the latencies.
    Source: the pipeline of equal chunks, derived here.
    """
    first = np.minimum(chunk_bytes, np.asarray(nbytes, float))
    slowest = np.min(np.asarray(bandwidth, float), axis=0)
    return np.sum(latency + _wire(first, bandwidth), axis=0) + _wire(np.asarray(nbytes, float) - first, slowest)


def all_shards_seconds(shard_seconds: ArrayLike) -> NDArray:
    """When a sequence becomes consumable: all its shards must be there, so the slowest decides [s].

    shard_seconds [s] carries one leading axis, one entry per rank, stage or replica part.
    """
    return np.max(np.asarray(shard_seconds, float), axis=0)


def unhidden_seconds(transfer: ArrayLike, compute: ArrayLike, hidden_fraction: ArrayLike) -> NDArray:
    """Transfer time left visible when part of it runs behind compute.

        t = transfer - hidden_fraction * min(transfer, compute)

    transfer, compute [s]; hidden_fraction: share of the possible overlap that is reached [0-1]. 0 is the
    serial law, 1 perfect overlap (then only the excess over compute shows). Layer-wise loading of L layers
    reaches at best (L - 1)/L, see `layerwise_seconds`; measured values run from a third to nine tenths
    (method.md section 2.5).
    """
    return np.asarray(transfer, float) - hidden_fraction * np.minimum(transfer, compute)


def layerwise_seconds(transfer: ArrayLike, compute: ArrayLike, layers: ArrayLike) -> NDArray:
    """Transfer plus compute when layer i is computed while layer i + 1 is loaded, all layers equal.

        t = T/L + (L - 1)/L max(T, C) + C/L

    transfer T, compute C: of all layers [s]; layers L [1]. L = 1 is serial (T + C); L -> inf gives max(T, C).
    Equals compute + unhidden_seconds with hidden_fraction (L - 1)/L. Source: derived here (two-stage
    pipeline).
    """
    share = 1.0 / np.asarray(layers, float)
    return share * (np.asarray(transfer, float) + compute) + (1.0 - share) * np.maximum(transfer, compute)


def compressed_bandwidth(
    *, bandwidth: ArrayLike, ratio: ArrayLike, decode_rate: ArrayLike, pipelined: ArrayLike = True
) -> NDArray:
    """Bandwidth in uncompressed bytes of a path that carries compressed KV [B/s].

        pipelined: min(bandwidth ratio, decode_rate);  one after the other: 1 / (1/(bandwidth ratio) +
        1/decode_rate)

    bandwidth: of the path, compressed bytes [B/s]; ratio: original / compressed size [1]; decode_rate: output
    of the decoder [B/s], inf when free. ratio = 1 and decode_rate = inf give the plain bandwidth.
    """
    wire, decoder = np.asarray(bandwidth, float) * ratio, np.asarray(decode_rate, float)
    return np.where(pipelined, np.minimum(wire, decoder), 1.0 / (1.0 / wire + 1.0 / decoder))


def queue_depth(*, bandwidth: ArrayLike, latency: ArrayLike, operation_bytes: ArrayLike) -> NDArray:
    """Operations that must be in flight to reach a bandwidth: bandwidth * latency / operation size [1].

    bandwidth [B/s], latency of one operation [s], operation_bytes [bytes]. Source: Little's law (1961).
    """
    return np.asarray(bandwidth, float) * latency / operation_bytes


def queue_limited_bandwidth(
    *, bandwidth: ArrayLike, latency: ArrayLike, operation_bytes: ArrayLike, queue_depth: ArrayLike
) -> NDArray:
    """Bandwidth reached with so many operations in flight: min(bandwidth, depth size / latency) [B/s].

    The inverse of `queue_depth`. Zero latency gives the bandwidth. Arguments and source as there.
    """
    with np.errstate(divide="ignore"):
        return np.minimum(bandwidth, np.asarray(queue_depth, float) * operation_bytes / np.asarray(latency, float))
