"""Stays that hits do not renew: renewal sequences turn by turn, independent objects, LRU, and laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import gammainc

from kvmodel.formulas import characteristic_time as che
from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal, TabulatedTurns
from kvmodel.formulas.residence import fifo_hit_tokens, lru_lifetime_hit_tokens, random_hit_tokens
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens

RULES = {"fifo": fifo_hit_tokens, "random": random_hit_tokens, "lru with a lifetime": lru_lifetime_hit_tokens}
HEADS = SharedPrefix.zipf(4_000.0, 40, 0.9)
CHAT = SessionStream(0.5, Lognormal(2_000.0, 0.8), Constant(400.0), GeometricTurns(8.0), Lognormal(20.0, 1.0))


def ratio(hits):
    return (hits.private + hits.prefix) / (hits.reusable_private + hits.reusable_prefix)


def turns_that_write(within: np.ndarray) -> np.ndarray:
    """u_k from P(n pauses fit into a stay), n = 0, 1, ...: u_k = sum_j u_j d_(k-j)."""
    stay = -np.diff(within)
    writes = np.zeros(len(within))
    writes[0] = 1.0
    for k in range(1, len(writes)):
        writes[k] = sum(writes[j] * stay[k - j - 1] for j in range(k))
    return writes


@pytest.mark.parametrize("rule", [fifo_hit_tokens, lru_lifetime_hit_tokens])
@pytest.mark.parametrize("turns", [FixedTurns(9), TabulatedTurns([1.0, 0.0, 3.0, 2.0, 0.0, 5.0]), GeometricTurns(4.0)])
def test_a_lifetime_alone_is_a_renewal_sequence(rule, turns):
    """Room for everything and exponential pauses: n of them fit into R with the probability of an Erlang law. The
    inverse transform is blurred over 3 % of R, and pauses are resolved to a fifth."""
    stream = SessionStream(0.1, Constant(100.0), Constant(30.0), turns, Exponential(20.0), lifetime=70.0)
    n = np.arange(1, 120)
    writes = turns_that_write(np.concatenate([[1.0], gammainc(n, 70.0 / 20.0)]))
    returns = np.array([float(turns.survival(int(k))) for k in n])
    context = 100.0 + 30.0 * (n - 1)
    found = (returns * context * (1.0 - writes[1:])).sum() / (returns * context).sum()
    assert ratio(rule([stream], 1e12))[0] == pytest.approx(found, abs=0.003)


def test_pauses_of_one_length_leave_every_third_turn_out():
    """20 s and a lifetime of 50 s: turns 2 and 3 find it, the fourth not, and so on."""
    stream = SessionStream(0.02, Constant(100.0), Constant(10.0), FixedTurns(9), Constant(20.0), lifetime=50.0)
    missed = (120.0 + 150.0) / sum(range(100, 180, 10))
    assert ratio(fifo_hit_tokens([stream], 1e12))[0] == pytest.approx(1.0 - missed, abs=0.01)


@pytest.mark.parametrize("rule", [fifo_hit_tokens, random_hit_tokens])
def test_heads_asked_for_alone_are_independent_objects(rule):
    """Poisson touches of 400 objects: hit = x/(1+x) under both rules, with the x of `characteristic_time.fifo`. The
    cache holds at least 40 of them; there the fluctuation of a stay, which that formula leaves out, costs 0.005."""
    popularity = np.arange(1.0, 401.0) ** -0.8
    alone = SessionStream(2.0, Constant(0.0), prefix=SharedPrefix.explicit(1_000.0, popularity))
    capacity = np.array([4e4, 1e5, 2e5])
    rate = 2.0 * popularity[:, None] / popularity.sum() + 0.0 * capacity
    objects = che.fifo(rate, capacity, 1_000.0).hit_ratio
    assert np.allclose(ratio(rule([alone], capacity))[0], objects, atol=0.008)


def test_random_bridges_a_pause_with_an_exponential_stay():
    """Thousands of contexts: found E exp(-G/T), T where the mean occupancy, finished ones included, is the capacity."""
    stream = replace(CHAT, arrival_rate=50.0)
    waiting, finished = float(stream.paused_moments[1]), float(stream.finished_moments[1])

    def held(stay: float) -> float:
        bridged = 1.0 - float(np.real(stream.gap.laplace_deficit(1.0 / stay)))
        return 50.0 * stay * (waiting * (1.0 - bridged) + finished)

    for capacity in (2e6, 1e7):
        stay = brentq(lambda t, c=capacity: held(t) - c, 1e-3, 1e6)
        expected = 1.0 - float(np.real(stream.gap.laplace_deficit(1.0 / stay)))
        assert ratio(random_hit_tokens([stream], capacity))[0] == pytest.approx(expected, abs=0.006)


def test_an_infinite_lifetime_leaves_lru():
    """The law of LRU's stay is read at 13 times; that is all the difference."""
    for stream in (CHAT, replace(CHAT, prefix=HEADS), replace(CHAT, turns=FixedTurns(6))):
        capacity = np.geomspace(1e4, 1e6, 6)
        lru, limited = hit_tokens([stream], capacity), lru_lifetime_hit_tokens([stream], capacity)
        assert np.allclose(limited.private, lru.private, atol=0.012 * lru.reusable_private.max())
        assert np.allclose(limited.prefix, lru.prefix, atol=0.02 * max(lru.reusable_prefix.max(), 1.0))


@pytest.mark.parametrize("rule", RULES)
def test_limits(rule):
    for stream in (CHAT, replace(CHAT, prefix=HEADS), SessionStream(1.0, Constant(50.0))):
        hits = RULES[rule]([stream], np.array([0.0, 1e13]))
        most = hits.reusable_private + hits.reusable_prefix
        assert np.all((hits.private + hits.prefix)[:, 0] == 0.0)
        assert np.allclose((hits.private + hits.prefix)[:, 1], most[:, 1], rtol=0.01)


def test_retention_and_restarts_cut_what_is_found():
    """In an endless cache what is found is P(pause <= limit), whichever limit it is."""
    for rule in RULES.values():
        kept = ratio(rule([replace(CHAT, retention=30.0)], 1e13))[0]
        cold = ratio(rule([CHAT], 1e13, since=30.0))[0]
        assert kept == pytest.approx(float(CHAT.gap.cdf(30.0)), abs=0.01)
        assert cold == pytest.approx(float(CHAT.gap.cdf(30.0)), abs=0.01)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.05, 5.0), st.floats(1.5, 30.0), st.booleans(), st.sampled_from(list(RULES)))
def test_more_capacity_finds_more_and_hits_that_renew_find_most(rate, turns, head, rule):
    """Up to the half percent to which the law of a stay is read."""
    stream = replace(CHAT, arrival_rate=rate, turns=GeometricTurns(turns), prefix=HEADS if head else None)
    capacity = np.geomspace(1e4, 1e7, 9)
    found = ratio(RULES[rule]([stream], capacity))[0]
    assert np.all(np.diff(found) >= -0.005) and np.all(found >= 0.0) and np.all(found <= 1.0)
    assert np.all(found <= ratio(hit_tokens([stream], capacity))[0] + 0.025)


def test_arrays_equal_scalars():
    rates, means, tokens = np.array([0.1, 0.4]), np.array([3.0, 12.0]), np.array([1_000.0, 6_000.0])
    lifetime = np.array([np.inf, 100.0])

    def stream(rate, mean, head, end):
        prefix = SharedPrefix.zipf(head, 30, 0.8)
        return replace(CHAT, arrival_rate=rate, turns=GeometricTurns(mean), prefix=prefix, lifetime=end)

    for rule in (fifo_hit_tokens, lru_lifetime_hit_tokens):
        both = rule([stream(rates, means, tokens, lifetime), CHAT], 1e5)
        for k in range(2):
            one = rule([stream(rates[k], means[k], tokens[k], lifetime[k]), CHAT], 1e5)
            assert np.allclose(both.private[:, k], one.private, rtol=1e-3)
            assert np.allclose(both.prefix[:, k], one.prefix, rtol=1e-3)


@pytest.mark.parametrize(
    "turns", [GeometricTurns(5.0), FixedTurns(7), FixedTurns(1), TabulatedTurns([3.0, 0.0, 1.0, 2.0])]
)
def test_any_number_of_turns_is_a_mixture_of_geometric_ones(turns):
    ratio_, weight = turns.geometric_parts()
    k = np.arange(7)
    parts = (weight[:, None] * ratio_[:, None] ** k).sum(axis=0)
    assert np.allclose(parts, [float(turns.survival(int(j))) for j in k], atol=2e-6)


def test_turns_between_whole_numbers_keep_their_mean():
    ratio_, weight = FixedTurns(np.array([2.0, 4.25])).geometric_parts()
    total = (weight / (1.0 - ratio_)).sum(axis=0)  # sum over k of P(K > k)
    assert np.allclose(total, [2.0, 4.25], atol=1e-4)
