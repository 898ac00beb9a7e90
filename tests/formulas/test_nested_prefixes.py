"""Shared heads that nest: algebra, limits and laws. The simulator's word on them is in `tests/simulation`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.formulas.eviction import ideal_hit_tokens
from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.formulas.working_set import (
    characteristic_time,
    shared_pools,
    working_set_mean,
    working_set_variance,
)

CHAT = SessionStream(0.05, Lognormal(2_000.0, 0.8), Lognormal(400.0, 1.0), GeometricTurns(8.0), Lognormal(20.0, 1.3))
CAPACITY = np.geomspace(3e3, 1e6, 7)
SYSTEM = SharedPrefix.zipf(4_000.0, 12, 0.9)


def of(prefix):
    return replace(CHAT, prefix=prefix)


def ratios(hits):
    return hits.private / hits.reusable_private, hits.prefix / hits.reusable_prefix


# ------------------------------------------------------------------------------------------------------ working set


def test_mean_and_variance_of_two_tools_under_one_system_prompt():
    """Counted out: each tool is touched with p = 1 - exp(-L/2), apart from the other, and the system prompt with
    either."""
    system = SharedPrefix.uniform(7.0, 1)
    stream = SessionStream(0.5, Constant(0.0), prefix=SharedPrefix.uniform(3.0, 2, under=system))
    p = -np.expm1(-0.5 * 4.0 / 2)
    ways = [((1 - p) ** 2, 0.0), (2 * p * (1 - p), 10.0), (p**2, 13.0)]
    mean = sum(chance * tokens for chance, tokens in ways)
    assert working_set_mean([stream], 4.0) == pytest.approx(mean)
    assert working_set_variance([stream], 4.0) == pytest.approx(sum(q * (w - mean) ** 2 for q, w in ways))


def test_moments_against_drawn_windows():
    """Three levels, two populations that stop at different ones and leave tokens of their own, five standard errors."""
    system = SharedPrefix.explicit(5.0, [3.0, 1.0])
    tools = SharedPrefix.explicit(4.0, [2.0, 1.0], under=system)
    document = SharedPrefix.uniform(3.0, 3, under=tools)
    streams = [SessionStream(0.2, Exponential(2.0), prefix=document), SessionStream(0.1, Constant(1.0), prefix=system)]
    rng, drawn = np.random.default_rng(1), []
    for _ in range(20_000):
        deep, shallow = rng.poisson(0.2 * 6.0), rng.poisson(0.1 * 6.0)
        a, b, c = rng.random(deep) < 0.75, rng.random(deep) < 2 / 3, rng.integers(3, size=deep)
        systems = {*a.tolist(), *(rng.random(shallow) < 0.75).tolist()}
        under = {*zip(a.tolist(), b.tolist(), strict=True)}
        last = {*zip(a.tolist(), b.tolist(), c.tolist(), strict=True)}
        own = rng.exponential(2.0, deep).sum() + shallow
        drawn.append(5.0 * len(systems) + 4.0 * len(under) + 3.0 * len(last) + own)
    drawn = np.array(drawn)
    spread = drawn.std() / np.sqrt(len(drawn))
    assert working_set_mean(streams, 6.0) == pytest.approx(drawn.mean(), abs=5 * spread)
    square = (drawn - drawn.mean()) ** 2
    assert working_set_variance(streams, 6.0) == pytest.approx(
        square.mean(), abs=5 * square.std() / np.sqrt(len(drawn))
    )


@given(st.floats(1e3, 1e9))
def test_characteristic_time_inverts_the_mean(capacity):
    streams = [of(SharedPrefix.zipf(900.0, 30, 0.8, 2, SYSTEM)), of(SYSTEM)]
    assert working_set_mean(streams, characteristic_time(streams, capacity)) == pytest.approx(capacity, rel=1e-6)


def test_every_head_is_a_pool_of_all_who_pass_through_it():
    tools = SharedPrefix.uniform(1.0, 2, SYSTEM)
    deep, shallow = of(tools), of(SYSTEM)
    assert shared_pools([deep, shallow, CHAT]) == [(SYSTEM, [deep, shallow]), (tools, [deep])]
    share, count = tools.paths(0)
    assert (share * count).sum() == pytest.approx(1.0) and count.sum() == 24


# -------------------------------------------------------------------------------------------------------- hit tokens


@pytest.mark.parametrize("touch", ["reverse", "forward"])
@pytest.mark.parametrize("position", ["above", "below", "between"])
def test_one_empty_variant_changes_nothing(touch, position):
    """A head of no tokens and one variant, before, behind or between others; rounding of single precision."""
    empty = SharedPrefix.uniform(0.0, 1)
    if position == "between":
        plain = SharedPrefix.zipf(2_000.0, 8, 0.5, 2, SYSTEM)
        more = replace(plain, under=replace(empty, under=SYSTEM))
    else:
        plain = SYSTEM
        more = replace(SYSTEM, under=empty) if position == "above" else replace(empty, under=SYSTEM)
    one, other = (hit_tokens([of(prefix)], CAPACITY, touch) for prefix in (plain, more))
    for a, b in zip(ratios(one), ratios(other), strict=True):
        assert np.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("touch", ["reverse", "forward"])
def test_a_head_cut_in_two_finds_the_same_in_all(touch):
    """4,000 tokens as 2,000 behind 2,000 with one variant each: the same text, so the same tokens found in all. Both
    sides have the quadrature error of 0.002."""
    halves = replace(SYSTEM, tokens=2_000.0)
    cut = SharedPrefix.uniform(2_000.0, 1, under=halves)
    one, other = (hit_tokens([of(prefix)], CAPACITY, touch) for prefix in (SYSTEM, cut))
    for a, b in zip(ratios(one), ratios(other), strict=True):
        assert np.allclose(a, b, atol=0.004)


@pytest.mark.parametrize("touch", ["reverse", "forward"])
def test_behind_heads_of_no_tokens_variants_are_those_of_all_pairs(touch):
    """What a pinned head leaves to those behind it: variants with the product of both popularities."""
    outer, inner = np.array([3.0, 2.0, 1.0]), np.array([5.0, 1.0])
    pairs = SharedPrefix.explicit(2_000.0, np.outer(outer, inner).ravel())
    nested = SharedPrefix.explicit(2_000.0, inner, under=SharedPrefix.explicit(0.0, outer))
    one, other = (hit_tokens([of(prefix)], CAPACITY, touch) for prefix in (pairs, nested))
    for a, b in zip(ratios(one), ratios(other), strict=True):
        assert np.allclose(a, b, atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 1.2), st.sampled_from(["reverse", "forward"]))
def test_the_first_head_is_found_at_least_as_often_as_the_one_behind_it(first, behind, exponent, touch):
    prefix = SharedPrefix.zipf(2_000.0, behind, exponent, 2, SharedPrefix.zipf(3_000.0, first, exponent))
    hits = hit_tokens([of(prefix)], CAPACITY, touch)
    found = hits.heads / hits.reusable_heads
    assert np.all(found[0] >= found[1] - 0.004)
    assert np.all(np.diff(found, axis=-1) >= -0.002)
    assert np.allclose(hit_tokens([of(prefix)], 1e12, touch).prefix, hits.reusable_prefix, rtol=0.004)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 10))
def test_more_variants_never_find_more(first, behind, more):
    """Equally popular ones, at either level; twice the quadrature error."""

    def found(n, m):
        hits = hit_tokens([of(SharedPrefix.uniform(2_000.0, m, SharedPrefix.uniform(3_000.0, n)))], CAPACITY)
        return np.array([*ratios(hits), *(hits.heads / hits.reusable_heads)])

    few = found(first, behind)
    assert np.all(found(first + more, behind) <= few + 0.004) and np.all(found(first, behind + more) <= few + 0.004)


@pytest.mark.parametrize(("first", "behind"), [((20, 0.9), (30, 1.0)), ((1, 0.0), (100, 1.2)), ((12, 0.5), (6, 0.0))])
def test_groups_of_variants_at_both_levels(first, behind):
    """Two groups of the less popular ones at the nested level against every variant: 0.004."""
    every = None
    for tokens, (variants, exponent) in ((4_000.0, first), (2_000.0, behind)):
        every = SharedPrefix.explicit(tokens, np.arange(1.0, variants + 1) ** -exponent, every)
    grouped = SharedPrefix.zipf(2_000.0, *behind, 2, SharedPrefix.zipf(4_000.0, *first))
    assert len(grouped.paths(0)[0]) <= 35
    one, other = (hit_tokens([of(prefix)], CAPACITY) for prefix in (every, grouped))
    assert np.allclose(one.private / one.reusable_private, other.private / one.reusable_private, atol=0.001)
    assert np.allclose(one.heads / one.reusable_heads, other.heads / one.reusable_heads, atol=0.004)


@pytest.mark.parametrize("touch", ["reverse", "forward"])
def test_arrays_equal_scalars(touch):
    """Tokens, popularity and rate over the study's axes, at both levels, and populations that stop at each."""
    rate, exponent, tokens = np.array([0.02, 0.3]), np.array([0.4, 1.1]), np.array([1_000.0, 6_000.0])[:, None]
    capacity = np.array([2e4, 2e5])[:, None, None]

    def streams(r, z, p):
        system = SharedPrefix.zipf(p, 12, z)
        tools = SharedPrefix.zipf(2_000.0, 8, z, 2, system)
        return [replace(of(tools), arrival_rate=r), of(system), SessionStream(0.1, Constant(100.0))]

    for rule in (hit_tokens, ideal_hit_tokens):
        many = rule(streams(rate, exponent, tokens), capacity, touch)
        assert many.private.shape == (3, 2, 2, 2) and many.heads.shape == (2, 3, 2, 2, 2)
        for i, j, k in np.ndindex(2, 2, 2):
            one = rule(streams(rate[k], exponent[k], tokens[j, 0]), capacity[i, 0, 0], touch)
            for a, b in zip(many, one, strict=True):
                assert np.allclose(a[..., i, j, k], b, rtol=1e-5, atol=1e-6)


def test_nothing_where_there_is_no_head_and_everything_at_no_limit():
    tools = SharedPrefix.uniform(2_000.0, 3, SYSTEM)
    hits = hit_tokens([of(tools), of(SYSTEM), CHAT], np.array([0.0, 1e13]))
    assert np.all(hits.heads[1, 1:] == 0.0) and np.all(hits.reusable_heads[:, 2] == 0.0)
    assert np.allclose(hits.heads[..., 0], 0.0, atol=1e-3)
    assert np.allclose(hits.heads[..., 1], hits.reusable_heads[..., 1], rtol=0.003)
    assert np.allclose(hits.reusable_prefix[:, 1], [8 * 6_000.0, 8 * 4_000.0, 0.0])


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 1.0), st.integers(1, 30), st.floats(0.0, 1.2))
def test_lru_stays_below_the_best_possible(rate, variants, exponent):
    streams = [replace(of(SharedPrefix.zipf(2_000.0, variants, exponent, 2, SYSTEM)), arrival_rate=rate)]
    best, lru = (rule(streams, CAPACITY) for rule in (ideal_hit_tokens, hit_tokens))
    ceiling = best.reusable_private + best.reusable_prefix
    assert np.all(lru.private + lru.prefix <= best.private + best.prefix + 0.004 * ceiling)
    assert np.all(best.heads <= best.reusable_heads * (1 + 1e-9))
