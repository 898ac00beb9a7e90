"""Laws of retention, prices, pins and prefetches, on whole studies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.analyses import capacity, retention, value
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.formulas import retention as formulas
from kvmodel.study.load import load_study
from kvmodel.study.retention import retention_table
from kvmodel.system.case import Case
from kvmodel.units import HOUR
from tests.conftest import ROOT
from tests.studies import study


def worked_out(loaded):
    case = Case.model_validate(loaded.case_data)
    return case, load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))


@pytest.fixture(scope="module")
def paused():
    return worked_out(load_study(ROOT / "examples" / "paused_sessions" / "study.yaml"))


@pytest.fixture(scope="module")
def table():
    return retention_table(load_study(ROOT / "examples" / "paused_sessions" / "study.yaml"))


def pauses(law, **more):
    return study(workload__chat__pauses={"only": law}, **more)


def window(law, tier="dram", **more):
    case, load = worked_out(pauses(law, **more))
    return {a.tier: a for a in retention.windows_of(case, load) if a.quantity == "retention.window"}[tier]


def test_a_fixed_think_time_is_kept_to_the_moment_or_never():
    assert window({"constant": "20 min"}).value == pytest.approx(1200.0)
    long = window({"constant": "40 d"})
    assert long.value == 0 and long.flags == ("never keep",)


def test_the_best_window_is_where_the_hazard_falls_through_the_price(paused):
    """p f(T) / (1 - p F(T)) = s/m at every interior window, with the hazard taken by differences of the law."""
    case, load = paused
    found = {
        (a.population, a.tier): a.value for a in retention.windows_of(case, load) if a.quantity == "retention.window"
    }
    checked = 0
    for t in load.traffic[:2]:  # the hourly job returns all at once
        *stays, dropped = retention.stays_of(case, load, t)
        p, law = t.returning, t.sessions.gap_law
        for stay in stays:
            best = found[t.name, stay.place]
            if 0 < best < np.inf:
                density = (law.cdf(best * 1.001) - law.cdf(best * 0.999)) / (0.002 * best)
                hazard = p * density / (1 - p * law.cdf(best))
                assert hazard == pytest.approx(stay.rent / (dropped.return_cost - stay.return_cost), rel=1e-3)
                checked += 1
    assert checked >= 4


def test_a_tier_that_costs_nothing_keeps_for_ever_those_who_return():
    free = {
        "prices__dram": "0 USD/GB",
        "tiers__dram": {"kind": "dram", "capacity": "1 TiB", "read_bandwidth": "50 GB/s"},
    }
    assert window({"exponential": {"mean": "1 h"}}, **free).value == np.inf


def test_a_tier_slower_than_computing_again_keeps_nothing():
    slow = window({"exponential": {"mean": "10 s"}}, tier="nvme", tiers__nvme__read_bandwidth="1 MB/s")
    assert slow.value == 0


@settings(max_examples=6)
@given(st.floats(1.1, 10.0))
def test_dearer_bytes_are_kept_for_less_time(factor):
    law = {"lomax": {"shape": 1.5, "scale": "5 min"}}
    cheap, dear = (window(law, prices__dram=f"{7 * x} USD/GB").value for x in (1.0, factor))
    assert dear <= cheap * (1 + 1e-6)


def test_no_chain_is_dearer_than_the_best_single_tier(table):
    for population in ("coding", "approvals", "hourly"):
        chain = table.value("retention.schedule_cost", population=population)
        ages = [row.value for row in table.select(quantity="retention.leaves_at", population=population)]
        assert ages == sorted(ages)
        case, load = worked_out(load_study(ROOT / "examples" / "paused_sessions" / "study.yaml"))
        (t,) = (t for t in load.traffic if t.name == population)
        *stays, _dropped = retention.stays_of(case, load, t)
        for stay in stays:
            alone = table.value("retention.cost_per_stay", population=population, tier=stay.place)
            assert chain <= alone + t.returning * stay.return_cost + stay.write_cost + 1e-12


def test_the_window_without_a_law_costs_at_most_twice_what_knowing_costs(paused):
    """Of those that return: E[min(s X, m)] by quadrature over the law is what one who knew would pay."""
    case, load = paused
    for t in load.traffic:
        law = t.sessions.gap_law
        returns = law.quantile((np.arange(4000) + 0.5) / 4000)
        *stays, dropped = retention.stays_of(case, load, t)
        for stay in stays:
            miss = dropped.return_cost - stay.return_cost
            known = np.mean(np.minimum(stay.rent * returns, miss))
            unknown = formulas.retention_cost(formulas.ski_rental_window(stay.rent, miss), law, stay.rent, miss)
            assert unknown <= 2 * known * 1.01


def test_prices_multiply_up(table, paused):
    case, load = paused
    for t in load.traffic:
        for stay in retention.stays_of(case, load, t)[:-1]:
            hour = table.value("price.waiting_session_hour", population=t.name, tier=stay.place)
            assert hour == pytest.approx(stay.nbytes * retention.rent_per_byte(case, stay.place) * HOUR, rel=1e-9)
    dram = retention.rent_per_byte(case, "dram")
    bought, power = 7e-9 / (4 * 8760 * HOUR), 0.08 / 3.6e6 * 1.3  # USD/B/s, USD/J at the socket
    assert dram == pytest.approx(bought + power * case.tiers["dram"].power_per_byte, rel=1e-9)
    # all of the GPUs' memory for KV, rented as session-hours, is the GPUs' price
    hbm = retention.rent_per_byte(case, "hbm") * capacity.hbm_pool(case).nbytes
    assert hbm == pytest.approx(4 * 2.95 / HOUR, rel=1e-9)


def test_a_longer_stay_costs_more_and_wear_less_per_hour():
    worn = study(tiers__nvme__rated_writes="100 TB", tiers__nvme__rated_writes_sequential=None)
    found = retention_table(worn)
    stays = [found.value(f"price.{w}.stay", population="chat", tier="nvme") for w in ("1min", "1h", "7d")]
    hours = [found.value(f"price.{w}.session_hour", population="chat", tier="nvme") for w in ("1min", "1h", "7d")]
    assert stays == sorted(stays) and hours == sorted(hours, reverse=True)
    assert hours[0] > 2 * found.value("price.waiting_session_hour", population="chat", tier="nvme")  # mostly wear


def test_plans_by_hand(table):
    """Hourly jobs of 24 turns: the hour plan writes once at 2 and reads 23 times at 0.1; five minutes always expire."""
    assert table.value("price_plan.cost", population="hourly", tier="one_hour") == pytest.approx((2 + 23 * 0.1) / 24)
    assert table.value("price_plan.cost", population="hourly", tier="five_minutes") == pytest.approx(1.25)
    best = {row.population: row.flags for row in table.select(quantity="price_plan.best")}
    assert best == {
        "coding": ("cheapest: five_minutes",),
        "approvals": ("cheapest: none",),
        "hourly": ("cheapest: one_hour",),
    }
    assert table.value("price_plan.break_even", population="coding", tier="one_hour") == pytest.approx(1 / 1.9)


def test_ranks_follow_value_per_byte(table):
    for tier in ("dram", "nvme"):
        worth = {r.population: float(r.value) for r in table.select(quantity="value.per_byte", tier=tier)}
        rank = {r.population: float(r.value) for r in table.select(quantity="value.rank", tier=tier)}
        assert sorted(worth, key=worth.get, reverse=True) == sorted(rank, key=rank.get)
    assert all(row.value >= 0 for row in table.select(quantity="value.per_stay"))


def test_a_pin_wins_no_more_than_the_misses_it_spares():
    case, load = worked_out(study(tiers__dram__capacity="8 GiB", tiers__nvme__capacity="20 GB"))
    found = {(a.quantity, a.tier): a.value for a in value.evaluate(case, load)}
    missing = load.opportunity["system"] - load.resident["system"].sum(axis=0)
    second = retention.cost.gpu_cost_rate(case) / case.deployment.instances
    spared = missing / 2000 * value.timing.prefill_terms(case).saved(2000) * second
    assert 0 <= found["pin.gain", "nvme"] <= spared * 1.05
    assert found["pin.gain", "nvme"] >= found["pin.gain_of_all", "nvme"]  # the best choice of variants
    assert found["pin.displaced", "nvme"] >= 0


def test_a_prefetch_pays_when_the_moment_is_known_and_the_fetch_is_dear():
    slow = {"tiers__dram__read_bandwidth": "0.4 GB/s"}

    def gain(law):
        case, load = worked_out(pauses(law, **slow))
        return {a.tier: a.value for a in value.evaluate(case, load) if a.quantity == "prefetch.gain"}["dram"]

    assert gain({"uniform": {"low": "3600 s", "high": "3601 s"}}) > 0 > gain({"exponential": {"mean": "1 h"}})


def test_without_prices_a_plan_still_has_an_answer():
    case, load = worked_out(study(prices={}, slo=None))
    (answer,) = retention.windows_of(case, load)
    assert np.isnan(answer.value) and "prices" in answer.flags[0]


def test_schedule_is_the_sum_of_its_parts(paused):
    """One cut is a window, with the fetch paid by those who come back and the move by those who still wait."""
    case, load = paused
    t = load.traffic[0]
    law, p = t.sessions.gap_law, t.returning
    _hbm, dram, _, dropped = retention.stays_of(case, load, t)
    cut = np.array([600.0])
    one = formulas.schedule_cost(cut, law, [dram.rent, 0.0], [dram.return_cost, dropped.return_cost], [0.0], p)
    alone = formulas.retention_cost(600.0, law, dram.rent, dropped.return_cost - dram.return_cost, p)
    assert one == pytest.approx(alone + p * dram.return_cost, rel=1e-12)
    moved = formulas.schedule_cost(cut, law, [dram.rent, 0.0], [dram.return_cost, dropped.return_cost], [1.0], p)
    assert moved - one == pytest.approx(1 - p * law.cdf(600.0), rel=1e-12)
