"""A study's arms against the simulation of its sessions, tiers and GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.reuse_detail import CHAIN_ERROR, RULE_ERRORS
from kvmodel.study import verify
from kvmodel.study.verify import verified
from kvmodel.system.case import Case
from tests.studies import study

SMALL = {"tiers__dram__capacity": "160 GiB", "tiers__nvme__count": 1, "tiers__nvme__capacity": "400 GB"}
FOUND, SHARES, TIMES = 3 * 2, 2, 3  # three tiers, context and prefix; resident, timely; utilisation, TTFT, in time


def told(arm="all_tiers", turns=20_000, **changes):
    """(closed form, simulated, standard error) by what it is, tier and unit."""
    case = Case.model_validate(study(**{**SMALL, **changes}).case_data)
    found = list(verified(case, tiers_of(case, arm), arm, turns=turns))
    triples = list(zip(found[::3], found[1::3], found[2::3], strict=True))
    for triple in triples:
        assert [a.quantity for a in triple] == ["verify.closed_form", "verify.simulated", "verify.standard_error"]
        assert {a.arm for a in triple} == {arm} and len({a.definition.split(",")[0] for a in triple}) == 1
    return {(c.definition.split(",")[0], c.tier, c.unit): (c.value, s.value, e.value) for c, s, e in triples}


def off_the_bar(rows):
    return {k: v for k, v in rows.items() if k[2] != "s" and abs(v[0] - v[1]) > 0.015 + 3 * v[2]}


@pytest.mark.parametrize(
    "changes",
    [{}, {"policy__chain": "exclusive"}, {"policy__pinned": ["system"]}, {"policy__retention": "200 s"}],
    ids=["inclusive", "exclusive", "pinned", "retention"],
)
def test_closed_forms_stand_beside_their_simulation(changes):
    rows = told(**changes)
    assert len(rows) == FOUND + SHARES + TIMES
    assert not off_the_bar(rows)


@pytest.mark.parametrize(
    "changes",
    [{"bursts": {"share": 0.2, "factor": 4.0, "mean_length": 60.0}}, {"deleted": 0.5}],
    ids=["bursts", "deleted sessions"],
)
def test_what_the_sessions_state_is_simulated(changes):
    """Without it the two would be further apart than the bar: the rate or the tokens held are others."""
    rows = told("local_reuse", 40_000, **{f"workload__chat__{k}": v for k, v in changes.items()})
    assert not off_the_bar({k: v for k, v in rows.items() if k[1]})


def test_waits_are_mixed_over_the_rates_of_a_day():
    """Twice and half the mean, in two hours: the mean time to first token is a quarter above that of the mean rate."""
    curve = [{"share": 0.333, "factor": 2.0}, {"share": 0.667, "factor": 0.5}]
    day = {"workload__chat__day": curve, "workload__chat__period": "2 h"}
    mean = ("mean time to first token", "", "s")
    closed, seen, error = told(turns=80_000, workload__chat__arrivals="0.6 /s", **day)[mean]
    steady = told(turns=2_000, workload__chat__arrivals="0.6 /s")[mean][0]
    assert abs(closed - seen) <= 3 * error and abs(closed - seen) < abs(steady - seen)
    assert closed > 1.2 * steady


def test_every_instance_of_an_exclusive_chain_has_its_own_copy_of_a_pinned_prefix():
    """Nine tenths of each memory; one copy for all of them would find 0.05 too much below."""
    large = {"workload__system__tokens": "8k tokens", "workload__system__variants": 48, "deployment__gpu__count": 4}
    rows = told(policy__chain="exclusive", policy__pinned=["system"], **large)
    assert len(rows) == FOUND + SHARES + TIMES and not off_the_bar(rows)


def test_prefixes_that_nest_are_told_one_by_one():
    under = {"kind": "shared_prefix", "tokens": "3k tokens", "under": "system", "variants": 3}
    rows = told(workload__document=under)
    assert len(rows) == 3 * 3 + SHARES + TIMES and not off_the_bar(rows)
    assert ("share of the shared prefix document found down to this tier", "nvme", "") in rows


def test_a_tier_for_all_that_is_smaller_than_the_memories_above_it_holds_other_heads():
    """64 GiB below two memories of 53 GB each: heads that one of them has lost are found in the other tier more often
    than the larger of both finds them, which is what the closed form takes: 0.019 less."""
    rows = told(tiers__dram__capacity="64 GiB")
    closed, seen, _ = rows[("share of the shared prefix system found down to this tier", "dram", "")]
    assert 0.01 < seen - closed < 0.03
    assert all(key[1] == "dram" for key in off_the_bar(rows))


def test_without_reuse_there_is_nothing_to_find():
    rows = told("no_reuse", deployment__gpu__count=4)
    assert len(rows) == TIMES and not off_the_bar(rows)


def test_an_overloaded_arm_has_no_mean_time():
    rows = told("no_reuse", turns=4_000, workload__chat__arrivals="5 /s")
    closed, seen, error = rows[("mean time to first token", "", "s")]
    assert closed == seen == np.inf and np.isnan(error)
    assert rows[("share of turns within the TTFT limit", "", "")][:2] == (0.0, 0.0)


def test_a_wrong_closed_form_is_seen(monkeypatch):
    """The simulation of twice the rate of sessions, beside the closed form of the study's own."""
    plant_of = verify.plant_of

    def twice(*given):
        plant = plant_of(*given)
        for stream in plant.streams:
            object.__setattr__(stream, "arrival_rate", 2.0 * stream.arrival_rate)
        return plant

    monkeypatch.setattr(verify, "plant_of", twice)
    assert off_the_bar(told())


@pytest.mark.parametrize("rule", ["fifo", "random", "value_aware"])
def test_other_rules_stand_beside_their_simulation(rule):
    """Within what the flag of the rule says for these contexts (several hundred, on a shared prefix)."""
    rows = told(turns=40_000, policy__eviction=rule, compare=["all_tiers"])
    off = {k: abs(v[0] - v[1]) - 3 * v[2] for k, v in rows.items() if k[1]}
    assert max(off.values()) <= max(RULE_ERRORS[rule][1][-1], CHAIN_ERROR), off


def test_a_retention_that_hits_do_not_renew_is_simulated():
    """200 s from the writing; from the last use it would be 0.04 more of the contexts and 0.05 of the heads."""
    rows = told("local_reuse", 40_000, policy__retention="200 s", policy__retention_renewed=False)
    assert not off_the_bar({k: v for k, v in rows.items() if k[1]})


def test_a_rule_without_simulation_is_named(monkeypatch):
    monkeypatch.delitem(verify.SIMULATED, "ideal")
    case = Case.model_validate(study(policy__eviction="ideal").case_data)
    (only,) = verified(case, tuple(case.tiers), "all_tiers")
    assert np.isnan(only.value) and "no simulation of the eviction rule ideal" in only.flags[0]
