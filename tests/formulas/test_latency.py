"""Latency of hits and misses that queue together, against simulation and special cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import latency, queueing

WEIGHTS, SERVICE = np.array([0.8, 0.2]), np.array([0.3, 3.8])  # four hits to one miss, SCV about 2


def simulated_waits(rho, weights, service, jobs, seed):
    rng = np.random.default_rng(seed)
    s = rng.choice(service, size=jobs, p=weights)
    gaps = rng.exponential(np.dot(weights, service) / rho, jobs)
    walk = np.cumsum(s[:-1] - gaps[1:])
    return np.concatenate([[0.0], walk - np.minimum(np.minimum.accumulate(walk), 0.0)])  # Lindley's reflection


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_wait_law_against_simulation(rho):
    waits = np.stack([simulated_waits(rho, WEIGHTS, SERVICE, 200_000, seed) for seed in range(8)])
    law = latency.wait_law(weights=WEIGHTS, service_seconds=SERVICE, utilisation=rho)
    assert law.valid
    for q in (0.9, 0.95, 0.99):
        runs = np.quantile(waits, q, axis=1)
        said = latency.quantile_of(lambda t: latency.wait_exceedance(t, law), q, low=0.0, high=1e3)
        # 1 % is the law's own promise for p95 and p99; 3 % at p90, where the two-exponential body shows
        own = 0.03 if q < 0.95 else 0.01
        assert said == pytest.approx(runs.mean(), rel=own, abs=4 * runs.std() / np.sqrt(8))


@given(rho=st.floats(0.05, 0.95), share=st.floats(0.05, 0.95), slow=st.floats(1.1, 50))
def test_wait_law_keeps_mean_and_atom(rho, share, slow):
    weights, service = np.array([share, 1 - share]), np.array([1.0, slow])
    law = latency.wait_law(weights=weights, service_seconds=service, utilisation=rho)
    mean, scv = latency.mixture_moments(weights, service)
    area = law.slow_share / law.slow_rate + law.fast_share / law.fast_rate
    assert area == pytest.approx(queueing.single_server_mean_wait(rho, mean, scv), rel=1e-6)
    assert latency.wait_exceedance(0.0, law) == pytest.approx(rho)
    falling = latency.wait_exceedance(np.linspace(-1, 30 * mean, 200), law)
    assert falling[0] == 1 and np.all(np.diff(falling) <= 1e-9)


def test_wait_law_with_one_class_against_the_exact_deterministic_law():
    law = latency.wait_law(weights=np.ones((1, 1)), service_seconds=np.ones((1, 1)), utilisation=np.array([0.5, 0.8]))
    for q, promise in ((0.95, 0.003), (0.99, 0.001)):
        said = latency.quantile_of(
            lambda t: latency.wait_exceedance(t, law), q, low=np.zeros(2), high=np.full(2, 100.0)
        )
        exact = queueing.deterministic_wait_quantile(q, utilisation=np.array([0.5, 0.8]), service=1.0)
        np.testing.assert_allclose(said, exact, rtol=promise)


def test_wait_law_outside_its_range():
    law = latency.wait_law(
        weights=WEIGHTS[:, None], service_seconds=SERVICE[:, None], utilisation=np.array([0.0, 1.0, 1.5])
    )
    assert law.valid.tolist() == [False] * 3
    assert latency.wait_exceedance(10.0, law).tolist() == [0, 1, 1]


TERMS = dict(utilisation=0.7, mean_wait=2.0)


def test_moments():
    mean, scv = latency.mixture_moments([0.5, 0.5], [1.0, 3.0])
    assert (mean, scv) == (2.0, 0.25)
    assert latency.mixture_moments([1.0], [0.0]) == (0, 0)


def test_exceedance_by_hand():
    """Limit 2 s: the slow class cannot meet it, the fast one fails when it waits more than 1.7 s."""
    said = latency.mixture_exceedance(2.0, weights=WEIGHTS, service_seconds=SERVICE, **TERMS)
    assert said == pytest.approx(0.2 + 0.8 * 0.7 * np.exp(-0.7 * 1.7 / 2.0))


def test_exponential_service_gives_the_exponential_sojourn():
    """M/M/1, its service law as many classes: the sojourn is exponential with rate mu - lambda."""
    shares = (np.arange(4000) + 0.5) / 4000
    service = -np.log1p(-shares)
    said = latency.mixture_exceedance(
        5.0, weights=np.full(4000, 1 / 4000), service_seconds=service, utilisation=0.6, mean_wait=1.5
    )
    assert said == pytest.approx(np.exp(-0.4 * 5.0), rel=1e-3)


@given(q=st.floats(0.05, 0.9999), rho=st.floats(0, 0.98), wait=st.just(0.0) | st.floats(1e-6, 50))
def test_quantile_inverts_the_exceedance(q, rho, wait):
    terms = dict(weights=WEIGHTS, service_seconds=SERVICE, utilisation=rho, mean_wait=wait)
    x = latency.mixture_quantile(q, **terms)
    assert latency.mixture_exceedance(x, **terms) <= 1 - q + 1e-9
    assert x == pytest.approx(0.3) or latency.mixture_exceedance(x - 1e-6 * (x + 1), **terms) >= 1 - q - 1e-6


def test_quantile_at_the_ends():
    terms = dict(weights=WEIGHTS, service_seconds=SERVICE)
    assert latency.mixture_quantile(0.5, **terms, utilisation=0.0, mean_wait=0.0) == pytest.approx(0.3)
    assert latency.mixture_quantile(0.9, **terms, utilisation=0.0, mean_wait=0.0) == pytest.approx(3.8)
    assert latency.mixture_quantile(0.9, **terms, utilisation=1.0, mean_wait=np.inf) == np.inf
    absent = latency.mixture_quantile(0.99, weights=[1.0, 0.0], service_seconds=SERVICE, utilisation=0.0, mean_wait=0.0)
    assert absent == pytest.approx(0.3)


def test_timely():
    idle = latency.timely_probability([1.0, 2.0], fetch=1.5, utilisation=0.0, mean_wait=0.0)
    assert idle.tolist() == [0, 1]
    assert latency.timely_probability(1.0, fetch=1.5, utilisation=0.0, mean_wait=0.0, lead=0.5) == 1
    busy = latency.timely_probability(3.0, fetch=1.0, **TERMS)
    assert busy == pytest.approx(1 - 0.7 * np.exp(-0.7 * 2.0 / 2.0))
    assert latency.prefetch_wait_seconds(fetch=2.0, lead=[0.0, 1.5, 3.0]).tolist() == [2, 0.5, 0]
    assert latency.prefetch_waste_bytes(10.0, used_probability=[1.0, 0.5, 0.0]).tolist() == [0, 10, np.inf]


def test_arrays_equal_scalars():
    rho, limit = np.array([[0.1], [0.9], [1.2]]), np.array([0.2, 1.0, 9.0, 50.0])
    classes = dict(weights=WEIGHTS[:, None, None], service_seconds=SERVICE[:, None, None])
    waits = np.array([[0.1], [7.0], [np.inf]])
    whole = latency.mixture_exceedance(limit, **classes, utilisation=rho, mean_wait=waits)
    quantiles = latency.mixture_quantile(0.95, **classes, utilisation=rho, mean_wait=waits)
    assert whole.shape == (3, 4) and quantiles.shape == (3, 1)
    for (r, c), value in np.ndenumerate(whole):
        one = dict(weights=WEIGHTS, service_seconds=SERVICE, utilisation=rho[r, 0], mean_wait=waits[r, 0])
        assert value == latency.mixture_exceedance(limit[c], **one)
        assert quantiles[r, 0] == latency.mixture_quantile(0.95, **one)
