"""How long does a prompt take to prefill, with and without a cached prefix?

One law for every model: a constant, a part linear in the new tokens (weights, MLP, projections) and a part
quadratic in the tokens seen (attention scores). Measurements of dense models follow it within about 1 %;
mixture-of-experts models follow it too, with their own constant and rates per engine. The three terms are
either calibrated (:mod:`kvmodel.formulas.calibration`) or predicted from a roofline with the functions below.

Symbols: n prompt tokens, p cached prefix tokens, P active parameters, F peak FLOP/s of the tensor-parallel
group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "activation_seconds_per_token",
    "all_reduce_seconds_per_token",
    "attention_pairs",
    "attention_seconds_per_token_squared",
    "chunk_count",
    "chunk_terms",
    "chunked_prefill_seconds",
    "linear_seconds_per_token",
    "prefill_flops",
    "prefill_seconds",
    "prefill_valid",
    "saved_seconds",
    "windowed_prefill_seconds",
]

FLOPS_PER_PARAMETER = 2.0  # one multiply and one add per weight and token


def prefill_seconds(
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    *,
    constant: ArrayLike,
    linear: ArrayLike,
    attention: ArrayLike,
) -> NDArray:
    """Time to compute the KV of a prompt whose first tokens are already cached.

        t = constant + linear (n - p) + attention (n^2 - p^2)

    The suffix is not free: its tokens still attend to the cached prefix, so the saving is p linear + p^2
    attention, less than the share p/n of the whole.

    tokens: prompt length n [tokens]; cached_tokens: prefix p already in HBM [tokens]; constant: launch,
    scheduling and first-token overhead [s]; linear [s/token]; attention [s/token^2]. All broadcast together.
    At zero: n = p gives the constant. At infinity: grows with n^2. Valid when 0 <= p <= n
    (:func:`prefill_valid`); outside, the law is still evaluated. Source: method.md section 2.2-2.3; FLOP
    counts as in :func:`prefill_flops`.
    """
    n, p = np.asarray(tokens, float), np.asarray(cached_tokens, float)
    return constant + linear * (n - p) + attention * (n - p) * (n + p)


def prefill_valid(tokens: ArrayLike, cached_tokens: ArrayLike) -> NDArray:
    """Where the prefill law may be used: 0 <= cached prefix <= prompt, both [tokens], finite."""
    n, p = np.asarray(tokens, float), np.asarray(cached_tokens, float)
    return (p >= 0) & (p <= n) & np.isfinite(n)


def saved_seconds(cached_tokens: ArrayLike, *, linear: ArrayLike, attention: ArrayLike) -> NDArray:
    """Prefill time saved by a cached prefix of p tokens: linear p + attention p^2 [s].

    It does not depend on the prompt behind the prefix, nor on the constant, which a hit pays as well.
    cached_tokens [tokens], linear [s/token], attention [s/token^2]. Zero at p = 0. Derived from the law
    above.
    """
    p = np.asarray(cached_tokens, float)
    return linear * p + attention * p * p


def linear_seconds_per_token(active_parameters: ArrayLike, flops: ArrayLike, efficiency: ArrayLike) -> NDArray:
    """Roofline of the linear term: 2 P / (F efficiency) [s/token].

    active_parameters: parameters used by one token, all ranks together [parameters]; flops: peak of the
    tensor-parallel group [FLOP/s]; efficiency: share of the peak reached (MFU) [0-1].
    Zero efficiency or peak gives inf. Valid when the batch is compute bound (some hundred tokens and more).
    Source: two FLOP per parameter and token, Kaplan et al., arXiv 2001.08361, section 2.1.
    """
    with np.errstate(divide="ignore"):
        return FLOPS_PER_PARAMETER * np.asarray(active_parameters, float) / (np.asarray(flops, float) * efficiency)


def attention_seconds_per_token_squared(attention_width: ArrayLike, flops: ArrayLike, efficiency: ArrayLike) -> NDArray:
    """Roofline of the quadratic term, causal: width / (F efficiency) [s/token^2].

    attention_width: sum over the full-attention layers of heads * (qk dimension + v dimension) [elements].
    The factor: a full score matrix costs 2 n^2 heads qk for Q K^T and 2 n^2 heads v for the weighted sum; the
    causal half leaves n^2 heads (qk + v). With qk = v = head_dim and d = heads * head_dim this is 2 n^2 d per
    layer; a non-causal count (some papers) is twice this. flops [FLOP/s],
    efficiency [0-1]. Zero efficiency gives inf; zero width (no full-attention layer) gives 0.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(attention_width, float) / (np.asarray(flops, float) * efficiency)


def prefill_flops(
    tokens: ArrayLike, cached_tokens: ArrayLike, *, active_parameters: ArrayLike, attention_width: ArrayLike
) -> NDArray:
    """Work of a prefill: 2 P (n - p) + width (n^2 - p^2) [FLOP].

    Arguments as above: tokens, cached_tokens [tokens]; active_parameters [parameters]; attention_width
    [elements]. Source: the two rooflines above, summed; embeddings are counted in P by convention.
    """
    return prefill_seconds(
        tokens,
        cached_tokens,
        constant=0.0,
        linear=FLOPS_PER_PARAMETER * np.asarray(active_parameters, float),
        attention=attention_width,
    )


def attention_pairs(tokens: ArrayLike, window: ArrayLike) -> NDArray:
    """Twice the (query, key) pairs of causal attention over n tokens that look back at most `window` tokens.

        g(n; w) = n^2 - max(n - w, 0)^2      (n^2 up to the window, then linear: 2 w n - w^2)

    It takes the place of n^2 in the prefill law. tokens n, window w [tokens]; w = inf is full attention; w =
    0 gives 0. Derived: the sum over i of min(i, w), boundary terms of order n dropped as in n^2 / 2 itself.
    """
    n, w = np.asarray(tokens, float), np.asarray(window, float)
    return n * n - np.maximum(n - w, 0.0) ** 2


def windowed_prefill_seconds(
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    *,
    constant: ArrayLike,
    linear: ArrayLike,
    attention: ArrayLike,
    windowed_attention: ArrayLike,
    window: ArrayLike,
) -> NDArray:
    """Prefill time of a model that mixes full and sliding-window attention layers.

        t = constant + linear (n-p) + attention (n^2-p^2) + sum_j windowed_j (g(n; w_j) - g(p; w_j))

    windowed_attention [s/token^2] and window [tokens] carry one leading axis, one entry per kind of window
    layer; windowed_attention is `attention_seconds_per_token_squared` of those layers' width. The rest as
    `prefill_seconds`. A window of inf makes the layer a full one; beyond the window the term is linear in n.
    """
    full = prefill_seconds(tokens, cached_tokens, constant=constant, linear=linear, attention=attention)
    pairs = attention_pairs(tokens, window) - attention_pairs(cached_tokens, window)
    return full + np.sum(windowed_attention * pairs, axis=0)


def chunk_count(tokens: ArrayLike, cached_tokens: ArrayLike, chunk_tokens: ArrayLike) -> NDArray:
    """Steps of a chunked prefill: ceil((n - p) / chunk), at least one (the last token is computed)."""
    new = np.asarray(tokens, float) - np.asarray(cached_tokens, float)
    return np.maximum(np.ceil(new / chunk_tokens), 1.0)


def chunked_prefill_seconds(
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    *,
    chunk_tokens: ArrayLike,
    constant: ArrayLike,
    linear: ArrayLike,
    attention: ArrayLike,
    step_seconds: ArrayLike = 0.0,
    reread_seconds_per_token: ArrayLike = 0.0,
) -> NDArray:
    """Prefill time when the prompt is computed in chunks between decode steps.

        t = t_prefill + (k - 1) step + reread sum_{j=1}^{k-1} (p + j chunk),   k = ceil((n - p) / chunk)

    Every further chunk pays a step overhead (launch, and the decode tokens that ride along) and reads the KV
    of all tokens before it again. chunk_tokens [tokens]; step_seconds: added time per further step [s];
    reread_seconds_per_token: KV bytes per token / HBM bandwidth [s/token]; the rest as `prefill_seconds`. One
    chunk (chunk = inf or >= n - p) gives `prefill_seconds` exactly; chunk -> 0 diverges. Source: derived
    here; the rereading is why very small chunks lose (Sarathi, arXiv 2308.16369).
    """
    whole = prefill_seconds(tokens, cached_tokens, constant=constant, linear=linear, attention=attention)
    further = chunk_count(tokens, cached_tokens, chunk_tokens) - 1.0
    chunk = np.minimum(chunk_tokens, np.asarray(tokens, float))  # inf means one chunk
    reread = further * np.asarray(cached_tokens, float) + chunk * further * (further + 1.0) / 2.0
    return whole + further * step_seconds + reread_seconds_per_token * reread


def chunk_terms(
    chunk_tokens: ArrayLike, *, step_seconds: ArrayLike = 0.0, reread_seconds_per_token: ArrayLike = 0.0
) -> tuple[NDArray, NDArray]:
    """What computing in chunks adds to the linear [s/token] and the attention term [s/token^2] of the prefill law.

        step / chunk,   reread / (2 chunk)

    `chunked_prefill_seconds` with the number of further chunks taken as (n - p)/chunk, where it is half a chunk less in
    the mean: half a step and half a rereading of the prefix too long, which is little for many chunks. Arguments as
    there; chunk = inf adds nothing. Derived here: sum over j = 1..k of (p + j chunk) with k = (n - p)/chunk - 1/2.
    """
    chunk = np.asarray(chunk_tokens, float)
    return step_seconds / chunk, reread_seconds_per_token / (2.0 * chunk)


def all_reduce_seconds_per_token(
    *,
    reductions: ArrayLike,
    hidden_size: ArrayLike,
    bytes_per_element: ArrayLike,
    tensor_parallel: ArrayLike,
    bandwidth: ArrayLike,
) -> NDArray:
    """Tensor-parallel communication per prefilled token, a part of the linear term [s/token].

        t = reductions * 2 (tp - 1)/tp * hidden * bytes / bandwidth       (ring all-reduce)

    This is why efficiency falls with TP: compute shrinks as 1/tp, this does not. reductions: all-reduces per
    token, 2 per layer [1]; hidden_size [elements]; bytes_per_element [bytes]; tensor_parallel [ranks];
    bandwidth: of one rank's link, one direction [B/s]. tp = 1 gives 0; tp -> inf saturates. Source: Patarasu
    and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117-124. No overlap with compute is assumed.
    """
    ring = 2.0 * (np.asarray(tensor_parallel, float) - 1.0) / tensor_parallel
    return reductions * ring * np.asarray(hidden_size, float) * bytes_per_element / bandwidth


def activation_seconds_per_token(
    *,
    layers: ArrayLike,
    hidden_size: ArrayLike,
    tensor_parallel: ArrayLike,
    bandwidth: ArrayLike,
    bytes_per_element: ArrayLike = 2.0,
    replicated: ArrayLike = 8.0,
    sharded: ArrayLike = 13.0,
) -> NDArray:
    """Memory traffic of the work between the matrix products, a part of the linear term [s/token].

        t = layers hidden bytes (replicated + sharded / tp) / bandwidth

    The other reason why efficiency falls with faster arithmetic and with TP: norms run whole on every rank. What the
    products themselves read and write is in their own rate. layers [1]; hidden_size [elements]; tensor_parallel
    [ranks]; bandwidth: effective HBM bandwidth of one rank [B/s]; bytes_per_element [bytes]; replicated, sharded:
    elements read and written per layer, in units of hidden_size [1]. Their defaults count a decoder with two norms
    fused with the residual sum (read 2, write 2, each), rotary embedding of queries and keys (2.5) and a gated
    activation of width 3.5 (read 7, write 3.5). Infinite bandwidth gives 0. Derived here; wrong by as much as the
    engine fuses less or more.
    """
    elements = np.asarray(layers, float) * hidden_size * (replicated + sharded / np.asarray(tensor_parallel, float))
    return elements * bytes_per_element / bandwidth
