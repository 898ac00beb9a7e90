"""Chains of tiers: an exclusive one is one stack cut in pieces, an inclusive one is caches side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.simulation.eviction_orders import Clairvoyant, Fifo, Lru, RandomVictim
from kvmodel.simulation.session_cache import hit_ratio, sampled_events, simulate_sessions
from kvmodel.simulation.tier_chain import Admitted, ChainTier, found_in_chain, turns_of

HEADS = SharedPrefix.zipf(50.0, 5, 1.0)
STREAMS = [
    SessionStream(0.05, Lognormal(100.0, 0.5), Exponential(20.0), GeometricTurns(4.0), Exponential(30.0), prefix=HEADS),
    SessionStream(0.05, Lognormal(30.0, 0.5), Constant(10.0), FixedTurns(3), Constant(20.0)),
]
SIZES = np.array([151.3, 302.9, 807.7])


@pytest.fixture(scope="module")
def events():
    return sampled_events(STREAMS, 4_000.0, np.random.default_rng(5))


def found(events, tiers, **how):
    turns = turns_of(STREAMS, events, pinned=how.get("pinned", ()))
    return turns, found_in_chain(STREAMS, turns, tiers, **how)


def test_an_exclusive_chain_is_one_stack_cut_at_cumulative_capacities(events):
    turns, seen = found(events, [ChainTier(size) for size in SIZES], chain="exclusive")
    stack = hit_ratio(simulate_sessions(STREAMS, 4_000.0, seed=5, warm_up=0.0), np.cumsum(SIZES))
    assert turns.heads.shape == (1, len(turns.time))
    assert np.allclose(seen.private.cumsum(axis=0).sum(axis=1) / turns.private.sum(), stack.private, atol=1e-9)
    assert np.allclose(seen.prefix.cumsum(axis=0).sum(axis=1) / turns.prefix.sum(), stack.prefix, atol=1e-9)
    assert np.all(np.diff(stack.private) > 0.05)


def test_an_inclusive_chain_is_caches_side_by_side(events):
    """Turn by turn: down to a tier a turn finds what the best of its tiers so far finds alone."""
    sizes = SIZES[[1, 0, 2]]
    turns, seen = found(events, [ChainTier(size) for size in sizes])
    alone = [found(events, [ChainTier(size)])[1] for size in sizes]
    for parts, each in ((seen.private, [a.private[0] for a in alone]), (seen.prefix, [a.prefix[0] for a in alone])):
        assert np.allclose(parts.cumsum(axis=0), np.maximum.accumulate(each), atol=1e-9)
    assert seen.private[1].max() == pytest.approx(0.0, abs=1e-9)  # smaller than the tier above it
    assert np.all(seen.private.sum(axis=0) <= turns.private + 1e-9)


@pytest.mark.parametrize("order", [Fifo, Clairvoyant])
def test_so_it_is_under_other_rules(events, order):
    """Without heads: with them a turn may find its head in another tier than its context, which one alone cannot."""
    free = [replace(stream, prefix=None) for stream in STREAMS]
    turns = turns_of(free, events)
    tiers = [ChainTier(size, order=order) for size in SIZES]
    seen = found_in_chain(free, turns, tiers)
    alone = [found_in_chain(free, turns, [tier]).private[0] for tier in tiers]
    assert np.allclose(seen.private.cumsum(axis=0), np.maximum.accumulate(alone), atol=1e-9)


def test_instances_have_the_first_tier_each_and_share_the_second(events):
    """The first tier finds what it finds for the sessions of its instance alone, the second what one for all does."""
    turns, seen = found(events, [ChainTier(SIZES[0]), ChainTier(SIZES[2], shared=True)], instances=3)
    place = turns.instance(3)
    assert np.bincount(place).min() > 200
    for one in range(3):
        mine, alone = found(events[:, place == one], [ChainTier(SIZES[0])])
        assert np.allclose(seen.private[0, place == one], alone.private[0], atol=1e-9)
        assert np.array_equal(mine.time, turns.time[place == one])
    both = found(events, [ChainTier(SIZES[2])])[1]
    assert np.all(seen.private.sum(axis=0) >= both.private[0] - 1e-9)


def test_what_moves_down_is_where_it_fits_and_nowhere_twice(events):
    """Exclusive, two instances over a shared tier: never more than all of a context, and heads once per instance."""
    for order in (Lru, RandomVictim):
        tiers = [ChainTier(SIZES[0], order=order), ChainTier(SIZES[2], shared=True, order=order)]
        turns, seen = found(events, tiers, chain="exclusive", instances=2)
        assert np.all(seen.private.sum(axis=0) <= turns.private * (1 + 1e-9))
        assert np.all(seen.prefix.sum(axis=0) <= turns.prefix * (1 + 1e-9))
        assert seen.private[1].sum() > 0.1 * turns.private.sum()


def test_nested_heads_are_found_one_behind_the_other():
    """Exclusive tiers as cuts of one stack, level by level; in a first tier of 30 tokens beside pinned heads of 50."""
    nested = [replace(STREAMS[0], prefix=SharedPrefix.zipf(70.0, 3, 0.5, under=HEADS)), *STREAMS]
    events = sampled_events(nested, 3_000.0, np.random.default_rng(5))
    turns = turns_of(nested, events)
    seen = found_in_chain(nested, turns, [ChainTier(size) for size in SIZES], chain="exclusive")
    log = simulate_sessions(nested, 3_000.0, seed=5, warm_up=0.0)
    for level in range(2):
        stack = hit_ratio(log, np.cumsum(SIZES), level=level)
        found = seen.heads[level].cumsum(axis=0).sum(axis=1)
        assert np.allclose(found / turns.heads[level].sum(), stack.prefix, atol=1e-9)
    pinned = found_in_chain(nested, turns_of(nested, events, pinned=[HEADS]), [ChainTier(280.0)], pinned=[HEADS])
    assert np.array_equal(pinned.heads[0, 0], turns.heads[0]) and 0.0 < pinned.heads[1].sum() < turns.heads[1].sum()


def test_blocks_are_written_at_their_second_use():
    """Turns of 100, 110, 120, ... tokens: what turn n finds below is what turn n - 2 left, with room for everything."""
    stream = SessionStream(0.02, Constant(100.0), Constant(10.0), FixedTurns(5), Constant(20.0))
    turns = turns_of([stream], sampled_events([stream], 5_000.0, np.random.default_rng(1)))
    tiers = [ChainTier(0.0), ChainTier(1e9, admitted=Admitted(uses=2, blocks=True))]
    for chain in ("inclusive", "exclusive"):
        below = found_in_chain([stream], turns, tiers, chain=chain).private[1]
        for nth, tokens in ((1, 0.0), (2, 0.0), (3, 100.0), (4, 110.0), (5, 120.0)):
            assert np.all(below[turns.nth == nth] == tokens)


@pytest.mark.parametrize("chain", ["inclusive", "exclusive"])
def test_pinned_heads_fill_the_tiers_from_the_top(events, chain):
    """Five heads of 50 tokens; a first tier of 100 has two fifths of each and nothing else."""
    turns, seen = found(events, [ChainTier(100.0), ChainTier(400.0)], chain=chain, pinned=[HEADS])
    headed = turns.prefix > 0
    assert np.allclose(seen.prefix[0, headed], 20.0) and np.allclose(seen.prefix[1, headed], 30.0)
    free = [replace(stream, prefix=None) for stream in STREAMS]
    left = {"inclusive": 400.0 - 250.0, "exclusive": 400.0 - 150.0}[chain]
    alone = found_in_chain(free, turns_of(free, events), [ChainTier(0.0), ChainTier(left)], chain=chain)
    assert np.allclose(seen.private, alone.private, atol=1e-9) and seen.private[0].max() == 0.0
