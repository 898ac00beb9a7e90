"""Laws of writes, wear and rules of admission, on whole studies."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.analyses import admitted, capacity, endurance
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.formulas import laws
from kvmodel.formulas import write_amplification as wa
from kvmodel.policies.admission import Admission
from kvmodel.study.endurance import endurance_table
from kvmodel.system.case import Case
from kvmodel.units import DAY, YEAR
from tests.studies import study

RULES = ("probability", "uses", "minimum_tokens", "value_per_byte")


def worked_out(**changes):
    case = Case.model_validate(study(**changes).case_data)
    load = load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))
    return case, load


def answers(target=None, **changes):
    case, load = worked_out(**changes)
    return {(a.quantity, a.population): a.value for a in endurance.evaluate(case, load, target)}


@cache
def cached(target):
    return answers(target)


@pytest.fixture(scope="module")
def base():
    return worked_out()


def test_a_growing_session_appends_its_blocks_or_rewrites_everything():
    """Eight turns of 1,000 + 250 tokens at first and 500 + 250 later, every context kept: by hand."""
    fixed = {
        "workload": {
            "chat": {
                "kind": "sessions",
                "arrivals": 0.01,
                "first_tokens": 1000,
                "new_tokens": 500,
                "output_tokens": 250,
                "turns": 8,
                "pauses": {"p": {"constant": 30}},
            }
        }
    }
    sizes = 1250 + 750 * np.arange(8)
    for layout, tokens in (("append", sizes[-1]), ("rewrite", sizes.sum())):
        rate = answers(**fixed, tiers__nvme__layout=layout)["endurance.write_rate", ""]
        assert rate == pytest.approx(0.01 * tokens * 131_072, rel=2e-3)


def test_parts_sum_to_the_writes(base):
    case, load = base
    found = endurance.evaluate(case, load)
    parts = [a.value for a in found if a.quantity == "endurance.write_rate" and a.population]
    (whole,) = (a.value for a in found if a.quantity == "endurance.write_rate" and not a.population)
    assert len(parts) == 2 and sum(parts) == pytest.approx(whole, rel=1e-12)


def test_layout_amplification_multiplies_the_writes():
    one, two = (answers(tiers__nvme__storage_amplification=x, tiers__nvme__capacity=f"{3.2 * x} TB") for x in (1, 2))
    assert two["endurance.write_rate", ""] == pytest.approx(2 * one["endurance.write_rate", ""], rel=1e-9)


def test_a_busy_day_of_many_small_sessions_is_the_mean_day():
    few, many = (answers(workload__chat__arrivals=rate) for rate in (0.002, 0.2))
    for one in (few, many):
        assert one["endurance.daily_writes", ""] == pytest.approx(one["endurance.write_rate", ""] * DAY)
    excess = [one["endurance.daily_writes_p99", ""] / one["endurance.daily_writes", ""] - 1 for one in (few, many)]
    assert excess[0] > excess[1] > 0
    assert excess[0] / excess[1] == pytest.approx(10, rel=0.05)  # square root of a hundred times the sessions


def test_wear_follows_the_mean_of_a_day_and_the_write_path_its_peak():
    """A quarter of the day at three times the rate of the rest: peak over mean is 3 / (0.25 x 3 + 0.75) = 2."""
    flat, curved = (
        answers(**more)
        for more in ({}, {"workload__chat__day": [{"share": 0.25, "factor": 3}, {"share": 0.75, "factor": 1}]})
    )
    assert curved["endurance.write_rate_peak", ""] == pytest.approx(2 * curved["endurance.write_rate", ""], rel=1e-9)
    assert flat["endurance.write_rate_peak", ""] == pytest.approx(flat["endurance.write_rate", ""], rel=1e-9)
    assert curved["endurance.write_rate", ""] == pytest.approx(flat["endurance.write_rate", ""], rel=0.02)


def test_drives_needed_and_rating_needed_reach_the_target():
    target = 7 * YEAR
    found = answers(target)
    drives = found["endurance.drives_needed", ""]
    assert answers(target, tiers__nvme__count=drives)["endurance.lifetime", ""] >= target
    assert answers(target, tiers__nvme__count=drives - 1)["endurance.lifetime", ""] < target
    rating = found["endurance.rating_needed", ""] * 3.2e12 * 5 * 365  # bytes
    lasting = answers(
        target, tiers__nvme__rated_writes=rating, tiers__nvme__rated_writes_sequential=rating * 37200 / 17520
    )
    assert lasting["endurance.lifetime", ""] == pytest.approx(target, rel=1e-9)


@settings(max_examples=4)
@given(st.floats(0.02, 0.5), st.floats(1.05, 4.0))
def test_life_falls_with_flow_and_rises_with_spare(rate, more):
    slow, fast = (answers(workload__chat__arrivals=r) for r in (rate, rate * more))
    assert fast["endurance.lifetime", ""] < slow["endurance.lifetime", ""]
    tight, roomy = (
        answers(tiers__nvme__spare=x, tiers__nvme__rated_writes_sequential=None) for x in (0.07, 0.07 * more)
    )
    for name in ("one_stream", "separate_streams", "least_recently_used", "in_log_order"):
        key = f"endurance.amplification_{name}", ""
        assert 1 <= roomy[key] <= tight[key] * (1 + 1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("target", [6 * YEAR, 10 * YEAR])
def test_a_rule_at_the_budget_never_exceeds_it(rule, target):
    found = cached(target)
    threshold = found[f"admission.{rule}.threshold", ""]
    assert found[f"admission.{rule}.lost", ""] >= -1e-12
    if np.isfinite(threshold):
        # the budget moves with the mix of classes; here one class writes nearly everything
        assert found[f"admission.{rule}.write_rate", ""] <= found["endurance.write_budget", ""] * (1 + 1e-3)


@pytest.mark.parametrize("target", [6 * YEAR, 10 * YEAR])
def test_the_coin_keeps_the_budget_when_the_study_is_worked_out_with_it(target):
    """Closed loop: hits, misses, shared prefixes and amplification are those of the study with that rule."""
    coin = float(cached(target)["admission.probability.threshold", ""])
    assert 0 < coin < 1
    again = answers(target, policy={"admission": {"probability": coin}})
    assert again["endurance.write_rate", ""] <= again["endurance.write_budget", ""] * (1 + 1e-3)
    assert again["endurance.lifetime", ""] == pytest.approx(target, rel=2e-3)


def test_second_use_is_the_rule_of_two_uses(base):
    load = base[1]
    for t in load.traffic:
        two = admitted.after_uses(t, 2)
        assert two.served == pytest.approx(t.reused_again, rel=1e-12)
        stated = admitted.under_rule(Admission(second_use=True), load.traffic)[t.name]
        assert stated.written == pytest.approx(two.written) and stated.served == pytest.approx(two.served)
        assert admitted.after_uses(t, 1) == admitted.Admitted(1.0, 1.0)


@pytest.mark.parametrize("turns", [laws.GeometricTurns(6.0), laws.FixedTurns(5.0), laws.FixedTurns(1.0)])
@pytest.mark.parametrize("uses", [1, 2, 3, 5])
def test_blocks_written_at_a_use_are_counted_right(base, turns, uses):
    """Against sessions drawn and their blocks counted one by one."""
    t = base[1].traffic[0]
    sessions = t.sessions.model_copy(update={"turns": turns})
    drawn = type(t)(t.name, sessions, t.prefixes, t.granularity)
    first, step = drawn.first.mean, drawn.step.mean
    written = served = created = returned = 0.0
    for turn_count in turns.sample(np.random.default_rng(5), 20_000):
        returns = int(turn_count) - 1
        blocks = np.array([first, *[step] * returns])
        reads = returns - np.arange(returns + 1)
        created, returned = created + blocks.sum(), returned + (blocks * reads).sum()
        written += blocks[reads >= uses - 1].sum()
        served += (blocks * np.maximum(reads - uses + 1, 0)).sum()
    rule = admitted.after_uses(drawn, uses)
    assert rule.written == pytest.approx(written / created, abs=0.02)
    assert rule.served == pytest.approx(served / returned if returned else 0.0, abs=0.02)


@settings(max_examples=20)
@given(st.floats(0.0, 1e6), st.floats(1.0, 4.0), st.integers(1, 7))
def test_a_stricter_rule_writes_and_serves_less(base, tokens, more, uses):
    for t in base[1].traffic:
        for lax, strict in (
            (admitted.beyond_length(t, tokens), admitted.beyond_length(t, tokens * more)),
            (admitted.after_uses(t, uses), admitted.after_uses(t, uses + 1)),
        ):
            assert 0 <= strict.written <= lax.written + 1e-12 and 0 <= strict.served <= lax.served + 1e-12 <= 1 + 2e-12
    assert admitted.beyond_length(base[1].traffic[0], 0.0) == admitted.Admitted(1.0, 1.0)


def test_placement_decides_the_amplification():
    device = {"tiers__nvme__spare": 0.15, "tiers__nvme__rated_writes_sequential": None}

    def ours(**more):
        return answers(**device, **{f"tiers__nvme__{k}": v for k, v in more.items()})["endurance.amplification", ""]

    mixed, apart, by_size = ours(), ours(fdp=True), ours(fdp=True, spare_split="by_size")
    assert apart <= by_size == pytest.approx(wa.fifo_amplification(1.15), rel=1e-9)
    assert apart <= mixed and ours(frees="in_log_order") == 1.0
    assert ours(live_share=0.8) == pytest.approx(wa.fifo_amplification(1.15 / 0.8), rel=0.05)
    assert ours(object_bytes="1 GiB", erase_unit="512 MiB") == 1.0
    assert ours(object_bytes="768 MiB", erase_unit="512 MiB") > 1.0
    assert ours(write_size="4 KiB", indirection_unit="16 KiB") == pytest.approx(4 * mixed)
    assert ours(compaction_threshold=0.5) == pytest.approx(2 * mixed)
    assert ours(amplification=1.03) == 1.03


def test_a_rating_without_its_pattern_says_so():
    case, load = worked_out(tiers__nvme__rated_writes_sequential=None)
    wear = endurance.wear_of(case, load, "nvme")
    assert wear.amplification == wear.rated_amplification == 1 and "amplification unknown" in wear.flags[0]


def test_wear_of_all_writes_is_the_drives_price_over_their_life(base):
    case, load = base
    found = {a.quantity: a.value for a in endurance.evaluate(case, load)}
    price = 2 * 3.2e12 * 0.15e-9
    assert found["endurance.wear_cost_rate"] * found["endurance.lifetime"] == pytest.approx(price, rel=1e-9)
    # wear makes fetching dearer, never cheaper
    assert found["endurance.breakeven_tokens"] >= 0


def test_curves_of_the_table_meet_its_rows():
    table = endurance_table(study())
    everything = table.value("admission.everything.timely", tier="nvme")
    for name in ("probability", "uses", "minimum_tokens"):
        curve = table.curves[f"{name}:nvme"]
        at = -1 if name == "probability" else 0
        assert curve.value("reuse.timely")[at] == pytest.approx(everything, abs=2e-3)
        assert curve.value("endurance.write_rate")[at] == pytest.approx(
            table.value("admission.everything.write_rate", tier="nvme"), rel=2e-3
        )
        life, rate = curve.value("endurance.lifetime"), curve.value("endurance.write_rate")
        assert np.all(np.diff(life[np.argsort(rate)]) <= 0)


def test_arrays_equal_scalars():
    case, _ = worked_out()
    widened = case.model_copy(
        update={
            "tiers": {**case.tiers, "nvme": case.tiers["nvme"].model_copy(update={"capacity": np.array([2e12, 6e12])})}
        }
    )
    load = load_of(widened, tiers_of(case, "all_tiers"), traffic_of(widened, capacity.granularity(case)))
    both = {(a.quantity, a.population): a.value for a in endurance.evaluate(widened, load)}
    for i, one in enumerate((2e12, 6e12)):
        alone = answers(tiers__nvme__capacity=one)
        for key, value in alone.items():
            if key[0] == "admission.uses.threshold" or key[0].startswith("admission.uses"):
                continue  # one number of uses for the whole study
            np.testing.assert_allclose(
                np.broadcast_to(both[key], (2,))[i], value, rtol=1e-6, atol=1e-3, equal_nan=True, err_msg=str(key)
            )
