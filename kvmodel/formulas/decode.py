"""How long does one output token take, and how many sequences decode at once?

A decode step reads the weights once and the KV of every sequence in the batch; it is bound by memory, by
compute, or by the launch of its kernels, whichever is longest. All laws here are for a whole tensor-parallel
group: bytes summed over its ranks, bandwidth and FLOP/s likewise.

Symbols: B sequences decoding together, ctx tokens each attends to, W weight bytes read per step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Concurrency",
    "concurrency_by_bisection",
    "experts_touched",
    "largest_batch",
    "mean_concurrency",
    "step_lines",
    "step_seconds",
    "streamed_step_seconds",
    "tokens_per_second",
    "weight_bytes_read",
]


class Concurrency(NamedTuple):
    """Mean number of sequences decoding, and whether the rate can be served at all (else inf)."""

    sequences: NDArray
    served: NDArray


def step_seconds(
    batch: ArrayLike,
    context_tokens: ArrayLike,
    *,
    weight_bytes: ArrayLike,
    kv_bytes_per_token: ArrayLike,
    bandwidth: ArrayLike,
    active_parameters: ArrayLike,
    flops: ArrayLike,
    attention_width: ArrayLike = 0.0,
    state_bytes: ArrayLike = 0.0,
    launch_floor: ArrayLike = 0.0,
) -> NDArray:
    """Time per output token of a batch (one decode step), as a roofline with a floor [s].

        t = max( (W + B (ctx kv + state)) / bandwidth,  B (2 P + 2 width ctx) / flops,  launch_floor )

    batch B [sequences]; context_tokens: mean context [tokens]; weight_bytes read in the step, all ranks (for
    mixture-of-experts `weight_bytes_read`) [bytes]; kv_bytes_per_token, physical on all ranks [bytes/token];
    state_bytes: window and recurrent state per sequence [bytes]; bandwidth: effective HBM, all ranks, about
    0.8 of peak [B/s]; active_parameters P [parameters]; flops: effective, all ranks, about 0.5-0.6 of peak
    [FLOP/s]; attention_width: as in prefill, 0 to leave attention out [elements]; launch_floor: shortest step
    the engine does [s]. At B = 0 the weights are still read. Grows linearly with B at last. Source: the
    roofline of Williams, Waterman and Patterson, CACM 52(4), 2009. Optimistic by some 20 % in practice.
    """
    bounds = _bounds(
        np.asarray(context_tokens, float),
        weight_bytes,
        kv_bytes_per_token,
        bandwidth,
        active_parameters,
        flops,
        attention_width,
        state_bytes,
        launch_floor,
    )
    return reduce(np.maximum, [start + slope * np.asarray(batch, float) for start, slope in bounds])


def _bounds(
    context: Any,
    weights: Any,
    kv: Any,
    bandwidth: Any,
    parameters: Any,
    flops: Any,
    width: Any,
    state: Any,
    floor: Any,
) -> list[tuple[Any, Any]]:
    """Memory, compute and launch as (intercept, slope) in the batch; names as in `step_seconds`."""
    speed = np.asarray(bandwidth, float)
    read = (np.asarray(weights, float) / speed, (context * kv + state) / speed)
    return [read, (0.0, 2.0 * (np.asarray(parameters, float) + context * width) / flops), (floor, 0.0)]


def step_lines(
    context_tokens: ArrayLike,
    *,
    weight_bytes: ArrayLike,
    kv_bytes_per_token: ArrayLike,
    bandwidth: ArrayLike,
    active_parameters: ArrayLike,
    flops: ArrayLike,
    attention_width: ArrayLike = 0.0,
    state_bytes: ArrayLike = 0.0,
    launch_floor: ArrayLike = 0.0,
) -> NDArray:
    """The bounds of a decode step as straight lines in the batch, shape (2, 3) + A.

    First axis: intercepts [s] and slopes [s/sequence]; second: memory, compute, launch; A is the shape the
    arguments broadcast to. Arguments as `step_seconds`, which is the maximum of these lines;
    `mean_concurrency` solves for the batch with them.
    """
    bounds = _bounds(
        np.asarray(context_tokens, float),
        weight_bytes,
        kv_bytes_per_token,
        bandwidth,
        active_parameters,
        flops,
        attention_width,
        state_bytes,
        launch_floor,
    )
    rows = np.broadcast_arrays(*(row for rows in zip(*bounds, strict=True) for row in rows))
    return np.stack(rows).reshape((2, 3) + rows[0].shape)


def tokens_per_second(batch: ArrayLike, seconds: ArrayLike) -> NDArray:
    """Output tokens/s of all sequences: batch [sequences] / step time, seconds [s/token]."""
    return np.asarray(batch, float) / seconds


def experts_touched(tokens: ArrayLike, *, experts: ArrayLike, experts_per_token: ArrayLike) -> NDArray:
    """Expected distinct experts of a layer that a step of so many tokens reads [experts].

        E (1 - (1 - k/E)^tokens)

    tokens in the step [tokens], experts E, experts_per_token k [1]. One token touches k, many touch all.
    Valid for routing that is uniform and independent; real routing is skewed and touches fewer. Source:
    occupancy, derived here.
    """
    total = np.asarray(experts, float)
    with np.errstate(divide="ignore", invalid="ignore"):  # k = E: every token touches all
        missed = np.exp(np.asarray(tokens, float) * np.log1p(-np.asarray(experts_per_token, float) / total))
    return total * (1.0 - np.where(np.asarray(tokens) == 0, 1.0, missed))


def weight_bytes_read(
    tokens: ArrayLike,
    *,
    shared_bytes: ArrayLike,
    expert_bytes: ArrayLike,
    experts: ArrayLike,
    experts_per_token: ArrayLike,
) -> NDArray:
    """Weight bytes a decode step reads: all shared weights and the experts its tokens touch [bytes].

    shared_bytes: attention, dense MLP, shared experts, head [bytes]; expert_bytes: all routed experts
    [bytes]; the rest as `experts_touched`. A dense model has expert_bytes = 0 (any number of experts). All
    ranks together.
    """
    touched = experts_touched(tokens, experts=experts, experts_per_token=experts_per_token)
    return shared_bytes + np.asarray(expert_bytes, float) * touched / experts


def largest_batch(*, kv_space: ArrayLike, context_tokens: ArrayLike, kv_bytes_per_token: ArrayLike) -> NDArray:
    """Sequences whose KV fits at once: floor(space / (context * bytes per token)), at least 0 [sequences].

    kv_space: HBM left by weights and reserve [bytes]; context_tokens [tokens]; kv_bytes_per_token
    [bytes/token]. No context gives inf; a negative space (weights do not fit) gives 0.
    """
    each = np.asarray(context_tokens, float) * kv_bytes_per_token
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(kv_space) <= 0, 0.0, np.floor(np.asarray(kv_space, float) / each))


def mean_concurrency(token_rate: ArrayLike, intercepts: ArrayLike, slopes: ArrayLike) -> Concurrency:
    """Sequences decoding at once when output tokens are asked for at a given rate.

        B = R t(B),  t(B) = max_i (a_i + b_i B)   =>   B = max_i R a_i / (1 - R b_i)

    Little's law closes on itself: more sequences make slower steps, slower steps more sequences. With a step
    that is the maximum of lines the smallest solution is the maximum of the lines' own solutions. token_rate
    R: arrival rate x output tokens [tokens/s]; intercepts a_i [s] and slopes b_i [s/sequence] carry one
    leading axis, as `step_lines` gives them. Returns inf and served = False where R b_i >= 1 for some line:
    that bound cannot produce so many tokens at any batch. R = 0 gives 0. Valid for a batch without an upper
    limit: compare with `largest_batch`. Source: Little 1961; the closed form is derived here.
    """
    rate = np.asarray(token_rate, float)
    left = 1.0 - rate * np.asarray(slopes, float)
    served = np.all(left > 0, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(left > 0, rate * intercepts / left, np.inf)
    return Concurrency(np.where(served, np.max(each, axis=0), np.inf), served)


def concurrency_by_bisection(
    token_rate: ArrayLike, step: Callable[[NDArray], NDArray], *, largest: ArrayLike, halvings: int = 60
) -> Concurrency:
    """As `mean_concurrency` for any step law, e.g. one with expert coverage: smallest B with B >= R step(B).

    step: function of a batch array giving seconds, with B / step(B) rising in B; largest: batch limit, of the
    full broadcast shape [sequences]. Not served, and inf, where the limit itself is too slow: largest < R
    step(largest). Resolution largest / 2^halvings.
    """
    rate, high = np.asarray(token_rate, float), np.asarray(largest, float)
    served = rate * step(high) <= high
    low = np.zeros_like(high)
    for _ in range(halvings):
        middle = (low + high) / 2.0
        enough = middle >= rate * step(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return Concurrency(np.where(served, high, np.inf), served)


def streamed_step_seconds(
    step: ArrayLike,
    *,
    lower_tier_bytes: ArrayLike,
    bandwidth: ArrayLike,
    latency: ArrayLike = 0.0,
    hidden_fraction: ArrayLike = 0.0,
) -> NDArray:
    """Step time when part of the KV stays in a lower tier and is read again for every token [s].

        t = step + read - hidden min(step, read),   read = latency + bytes / bandwidth

    Not to be confused with pause and resume, which moves the bytes once: here each token is bound to the slow
    link. step: step time of what is in HBM [s]; lower_tier_bytes: read per step, all sequences of the batch
    [bytes]; bandwidth: of the slow link [B/s]; latency: per step [s]; hidden_fraction: overlap reached [0-1].
    No bytes: the step alone (and the latency). Source: derived here.
    """
    read = latency + np.asarray(lower_tier_bytes, float) / bandwidth
    return step + read - hidden_fraction * np.minimum(step, read)
