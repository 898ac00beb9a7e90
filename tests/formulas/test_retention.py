"""Retention against the field's vectors, brute force, hand calculation, and the laws of stopping.

Vectors are recognised by what their inputs say, so any law and any numbers may stand in them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvmodel.formulas import laws, retention
from tests.theory_vectors import disagreements, vectors_of

GB, YEAR = 1e9, 31536000.0
POSITIVE = st.floats(1e-2, 1e2)
BURSTS = laws.Mixture((0.9, 0.1), (laws.Exponential(10.0), laws.Exponential(1000.0)))
TOOLS = laws.Mixture((0.9, 0.1), (laws.Lognormal.from_median_p90(9.0, 67.0), laws.Lognormal(233.0, 2.0)))
KINDS = [
    laws.Exponential(200.0),
    laws.Lomax(1.5, 60.0),
    laws.Lognormal(60.0, 1.5),
    laws.Lognormal(60.0, 0.2),
    laws.Constant(300.0),
    BURSTS,
    TOOLS,
    laws.Mixture((0.5, 0.5), (laws.Constant(60.0), laws.Lomax(2.0, 500.0))),
]


def break_even(i):
    """Cost of one fetch avoided over the rent of its bytes; service lives cancel where both are bought."""
    if "usd_per_access_per_second" in i:
        return i["usd_per_access_per_second"], i["usd_per_KB_ram"] * i["record_KB"]
    if "block_bytes" in i:
        memory = next(k for k in i if k.endswith("_usd_per_GB"))
        life = next(v for k, v in i.items() if k.endswith("_life_years"))
        rent = retention.holding_rent(i["block_bytes"], i[memory] / GB, life * i.get("seconds_per_year", YEAR))
        read = sum(v / GB * i["block_bytes"] for k, v in i.items() if k.endswith("usd_per_GB_read"))
        return read + sum(v for k, v in i.items() if k.endswith("per_hit_avoided")), rent
    device = next(v for k, v in i.items() if k.startswith("usd_per_d"))
    accesses = next(v for k, v in i.items() if k.startswith("accesses_per_second_per_"))
    return device / accesses, i["usd_per_MB_ram"] / i["pages_per_MB"]


def law_of(i):
    """The return-time law a vector names, by its own parameters."""
    kind = i["reuse_time_dist"].lower()
    if "hyper" in kind:
        weights = i.get("weights") or i.get("probabilities") or (i["p"], 1 - i["p"])
        rates = i.get("rates_per_s") or tuple(1 / m for m in i["means_s"])
        return laws.Mixture(tuple(weights), tuple(laws.Exponential(1 / r) for r in rates))
    if "exponential" in kind:
        return laws.Exponential(i["mean_s"] if "mean_s" in i else 1 / i["rate_per_s"])
    if "lomax" in kind or "pareto" in kind:
        return laws.Lomax(i["shape"], i["scale_s"])
    if "lognormal" in kind:
        if "p90_s" in i:
            return laws.Lognormal.from_median_p90(i["median_s"], i["p90_s"])
        return laws.Lognormal(i["median_s"] if "median_s" in i else np.exp(i["mu"]), i["sigma"])
    if "weibull" in kind:
        return laws.Weibull(i["shape"], i["scale_s"])
    if "uniform" in kind:
        return laws.Uniform(i["low_s"], i["high_s"])
    return laws.Constant(next(v for k, v in i.items() if k in ("value_s", "think_time_s", "mean_s", "period_s")))


def answer(i):
    if "reuse_time_dist" in i:
        law, rent, miss = law_of(i), i["storage_cost_per_s"], i["miss_cost"]
        p = i.get("return_probability", 1.0)
        best = retention.optimal_window(law, rent, miss, p)
        never, always = (retention.retention_cost(t, law, rent, miss, p) for t in (0.0, np.inf))
        return {
            "optimal_ttl_s": best.window,
            "expected_cost": best.cost,
            "hit_probability": best.hit_probability,
            "cost_if_ttl_0": never,
            "cost_at_ttl_0": never,
            "cost_if_never_evict": always,
        }
    if "storage_cost_per_s" in i:
        return {
            "break_even_ttl_s": retention.ski_rental_window(i["storage_cost_per_s"], i["miss_cost"]),
            "deterministic_competitive_ratio": retention.SKI_RENTAL_COMPETITIVE_RATIO,
            "randomised_competitive_ratio": retention.RANDOMISED_COMPETITIVE_RATIO,
        }
    return {"break_even_s": retention.break_even_residency(*break_even(i))}


def test_vectors(reference_data):
    mine = vectors_of(reference_data, "retention_economics")
    assert disagreements(mine, lambda v: answer(v["inputs"])) == []


@pytest.mark.parametrize("law", KINDS, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("returning", [1.0, 0.7])
@pytest.mark.parametrize("patience", [1.0, 30.0, 300.0, 3000.0])  # miss cost over rent [s]
def test_no_window_beats_the_best(law, returning, patience):
    best = retention.optimal_window(law, 1.0, patience, returning)
    windows = np.concatenate([[0.0], np.geomspace(1e-2, 1e6, 4001), [60.0, 300.0]])
    costs = retention.retention_cost(windows, law, 1.0, patience, returning)
    always = retention.retention_cost(np.inf, law, 1.0, patience, returning)
    assert best.cost <= min(costs.min(), always) * (1 + 1e-12)
    assert retention.retention_cost(best.window, law, 1.0, patience, returning) == pytest.approx(best.cost)
    assert best.hit_probability == law.cdf(best.window)


@given(st.floats(0.5, 4.0), POSITIVE, POSITIVE, POSITIVE)
def test_lomax_window_is_the_closed_form(order, scale, rent, miss):
    """Hazard order/(t + scale) falls through rent/miss at order miss/rent - scale.

    Where one in 1e9 pauses is longer than that, windows a few in a thousand apart cost the same to twelve digits.
    """
    law, window = laws.Lomax(order, scale), max(order * miss / rent - scale, 0.0)
    assume(law.survival(window) > 1e-9)
    best = retention.optimal_window(law, rent, miss)
    assert best.window == pytest.approx(window, rel=1e-3, abs=1e-3 * scale)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_exponential_is_for_ever_or_never(scale, rent, miss):
    best = retention.optimal_window(laws.Exponential(scale), rent, miss)
    assert best.window in (0.0, np.inf)
    assert best.cost == pytest.approx(min(rent * scale, miss))


def test_constant_think_time_is_all_or_nothing():
    pause = laws.Constant(300.0)
    assert retention.optimal_window(pause, 1.0, 299.0).window == 0.0
    assert retention.optimal_window(pause, 1.0, 301.0).window == np.inf  # it does return
    some_leave = retention.optimal_window(pause, 1.0, 400.0, 0.9)
    assert some_leave.window == 300.0 and some_leave.cost == 300.0  # all held to the moment of return
    assert retention.optimal_window(pause, 1.0, 330.0, 0.9).window == 0.0  # 330 * 0.9 < 300


def test_hyperexponential_window_is_where_the_hazard_falls_through():
    best = retention.optimal_window(BURSTS, 1.0, 500.0).window
    density = 0.9 / 10 * np.exp(-best / 10) + 0.1 / 1000 * np.exp(-best / 1000)
    assert density / BURSTS.survival(best) == pytest.approx(1 / 500.0, rel=1e-5)


@given(st.floats(0.0, 1e4), POSITIVE, POSITIVE)
def test_ski_rental_is_twice_as_dear_at_most(pause, rent, miss):
    known = min(rent * pause, miss)
    held = retention.retention_cost(retention.ski_rental_window(rent, miss), laws.Constant(pause), rent, miss)
    assert held <= retention.SKI_RENTAL_COMPETITIVE_RATIO * known * (1 + 1e-9) + 1e-12


@given(st.floats(0.01, 20.0))
def test_randomised_ski_rental_keeps_its_ratio(pause):
    """In units of the break-even; mean over 4,000 equal steps of the uniform number."""
    windows = retention.ski_rental_randomised_window((np.arange(4000) + 0.5) / 4000, 1.0, 1.0)
    cost = np.mean(retention.retention_cost(windows, laws.Constant(pause), 1.0, 1.0))
    assert cost <= retention.RANDOMISED_COMPETITIVE_RATIO * min(pause, 1.0) + 1e-3


def test_demotion_schedule_beats_every_other_schedule():
    """HBM, DRAM, flash, dropped; total cost of a schedule by direct integration on a fine grid."""
    law, returning = laws.Lomax(1.3, 30.0), 0.8
    rent, back, move = (
        np.array([1e-3, 1e-4, 1e-6, 0.0]),
        np.array([0.0, 0.01, 0.1, 1.0]),
        np.array([1e-3, 2e-3, 0.0]),
    )
    cuts = retention.demotion_windows(law, rent, back, move, returning).window
    assert retention.demotion_order_valid(cuts)

    def total(cuts):
        edges = np.concatenate([[0.0], cuts, [np.inf]])
        money = 0.0
        for j, (start, end) in enumerate(pairwise(edges)):
            stay = (
                0.0
                if j == 3
                else (
                    returning * (law.restricted_mean(end) - law.restricted_mean(start))
                    + (1 - returning) * (end - start)
                )
            )
            money += rent[j] * stay + back[j] * returning * (law.cdf(end) - law.cdf(start))
            money += move[j] * (1 - returning * law.cdf(end)) if j < 3 else 0.0
        return money

    for factors in np.array(np.meshgrid([0.5, 1.0, 2.0], [0.5, 1.0, 2.0], [0.5, 1.0, 2.0])).reshape(3, -1).T:
        assert total(cuts) <= total(np.sort(cuts * factors)) * (1 + 1e-12)


def test_price_plans():
    """A public price sheet's multipliers: five minutes writes at 1.25, an hour at 2, both read at 0.1."""
    write, read = np.array([1.25, 2.0]), 0.1
    even = retention.price_plan_break_even(write, read)
    assert even == pytest.approx([0.25 / 1.15, 1.0 / 1.9])
    assert retention.price_plan_cost(even, write, read) == pytest.approx([1.0, 1.0])
    assert retention.price_plan_cost(1.0, write, read, 2) == pytest.approx([1.35 / 2, 2.1 / 2])  # hour: needs three
    reach = laws.Lognormal(600.0, 1.0).cdf(np.array([300.0, 3600.0]))
    assert np.argmin(retention.price_plan_cost(reach, write, read)) == 1  # median of ten minutes: the hour pays
    assert retention.price_plan_break_even(1.0, 0.1) == 0.0


def test_value_and_pinning_by_hand():
    assert retention.value_of_keeping(0.5, 1.0, 0.2, 0.1, 1e-3, 100.0) == pytest.approx(0.2)
    assert retention.value_of_keeping(0.5, 1.0, 0.2, 0.1, 1e-3, 100.0, 4e-3) == pytest.approx(-0.2)
    # 2 requests/s of 1 USD, resident 75 % anyway: wins 0.5 USD/s, takes a quarter of its 100 B from others
    assert retention.pinning_gain(2.0, 1.0, 0.75, 100.0, 0.01) == pytest.approx(0.25)
    assert retention.pinning_gain(2.0, 1.0, 1.0, 100.0, 0.01) == 0.0
    assert retention.session_hour_price(1e9, 1e-15, 1e-3) == pytest.approx(3600 * (1e-6 + 1e-3))


@given(st.floats(0.0, 1e4), st.floats(0.0, 1.0))
def test_silence_makes_a_return_less_likely(elapsed, returning):
    law = laws.Exponential(100.0)
    gone = retention.never_returning_probability(elapsed, law, returning)
    assert 1 - returning <= gone * (1 + 1e-12)
    assert gone <= retention.never_returning_probability(elapsed + 50.0, law, returning) * (1 + 1e-12)


def test_ends():
    law = laws.Lomax(1.5, 60.0)
    assert retention.break_even_residency(0.0, 0.0) == 0.0 and retention.break_even_residency(-1.0, 1.0) == 0.0
    assert retention.break_even_residency(1.0, 0.0) == np.inf == retention.ski_rental_window(0.0, 1.0)
    assert retention.optimal_window(law, 0.0, 1.0).window == np.inf
    assert retention.optimal_window(law, 1.0, 0.0).window == 0.0
    assert retention.optimal_window(law, 1.0, 1.0, 0.0) == (0.0, 0.0, 0.0)
    assert retention.retention_cost(np.inf, law, 1.0, 1.0, 0.9) == np.inf
    assert retention.retention_cost(0.0, law, 1.0, 2.0, 0.5) == 1.0
    assert not retention.demotion_order_valid([10.0, 5.0])


def test_arrays_equal_scalars():
    rent, miss, scale = np.array([[0.0], [0.002], [0.1]]), np.array([1.0, 5.0]), np.array([20.0, 60.0])
    best = retention.optimal_window(laws.Lomax(1.5, scale), rent, miss, 0.9)
    assert best.window.shape == best.cost.shape == best.hit_probability.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        one = retention.optimal_window(laws.Lomax(1.5, scale[j]), rent[i, 0], miss[j], 0.9)
        assert best.window[i, j] == pytest.approx(one.window, rel=1e-6)
        assert best.cost[i, j] == pytest.approx(one.cost)


def test_a_prefetch_of_a_known_moment_by_hand():
    """Return at 100 s sharp, with certainty: held from 90 to 110 s, ten seconds of rent buy the fetch."""
    gain = retention.prefetch_gain(90.0, 110.0, laws.Constant(100.0), 0.01, 1.0)
    assert gain == pytest.approx(1.0 - 10 * 0.01)
    assert retention.prefetch_gain(90.0, 90.0, laws.Exponential(50.0), 0.01, 1.0) == 0
    assert retention.prefetch_gain(110.0, 120.0, laws.Constant(100.0), 0.01, 1.0) == 0  # back already, nothing held


@given(st.floats(1.0, 500.0), st.floats(1.0, 500.0), st.floats(0.05, 1.0))
def test_a_schedule_costs_what_its_stays_cost(first, more, p):
    """Two cuts against the integral over return times, place by place."""
    law, windows = laws.Lomax(1.7, 80.0), np.array([first, first + more])
    rent, back, move = np.array([0.02, 0.001, 0.0]), np.array([0.0, 0.3, 1.0]), np.array([0.05, 0.0])
    x = law.quantile((np.arange(20_000) + 0.5) / 20_000)
    in_first, in_second = np.minimum(x, windows[0]), np.clip(x - windows[0], 0.0, more)
    found = np.searchsorted(windows, x)
    returning = rent[0] * in_first + rent[1] * in_second + back[found] + move[0] * (x > windows[0])
    gone = rent[0] * windows[0] + rent[1] * more + move[0]
    total = p * returning.mean() + (1 - p) * gone
    assert retention.schedule_cost(windows, law, rent, back, move, p) == pytest.approx(total, rel=2e-3)
