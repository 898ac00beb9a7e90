"""What every kind of a list must obey: a new one is tested before its author writes a test."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from kvmodel.errors import StudyError
from kvmodel.laws import LAWS, law_choice
from kvmodel.policies.eviction import EVICTIONS
from kvmodel.presets import catalogue
from kvmodel.quantity import Tokens
from kvmodel.study.load import parse_study
from kvmodel.tiers import SPEED_ORDER, TIERS, Tier
from kvmodel.tiers.hbm import Hbm
from kvmodel.workloads import POPULATIONS
from tests.studies import STUDY, planned

ABILITIES = ("host_addressable", "gpu_consumable", "survives_process", "survives_power_loss")
STORAGE = [tier for tier in TIERS if tier is not Hbm]
PARAMETERS = {
    "exponential": {"mean": 700},
    "hyperexponential": {"short_mean": 100, "long_mean": 2000, "long_share": 0.2},
    "lognormal": {"median": 700, "p90": 4000},
    "lomax": {"shape": 2.5, "scale": 900},
    "uniform": [100, 900],
    "loguniform": [100, 900],
    "empirical": {"quantiles": [50, 200, 700, 1500, 6000]},
}


def kind_of(record) -> str:
    return record.model_fields["kind"].default


@pytest.mark.parametrize("record", STORAGE, ids=kind_of)
def test_a_tier_states_its_four_abilities_and_stands_in_the_order_of_speed(record):
    tier = TypeAdapter(Tier).validate_python({"kind": kind_of(record)})
    assert all(isinstance(getattr(tier, ability), bool) for ability in ABILITIES)
    assert tier.survives_process or not tier.survives_power_loss
    assert SPEED_ORDER["hbm"] < SPEED_ORDER[kind_of(record)]


@pytest.mark.parametrize("record", STORAGE, ids=kind_of)
def test_an_ability_can_be_said_otherwise(record):
    for ability in ABILITIES[:3]:
        usual = getattr(record(), ability)
        assert getattr(record(**{ability: not usual}), ability) is (not usual)


@pytest.mark.parametrize("record", STORAGE, ids=kind_of)
def test_a_plan_runs_with_a_tier_of_every_kind(record):
    tier = {"kind": kind_of(record), "capacity": "4 TiB", "read_bandwidth": "10 GB/s", "rated_writes": "10000 TB"}
    fields = {name: value for name, value in tier.items() if name in record.model_fields}
    found = planned(tiers={"hbm": {"kind": "hbm"}, "below": fields}, compare=["local_reuse", "all_tiers"])
    assert found.value("reuse.resident", arm="all_tiers", tier="below", population="") > 0
    assert found.value("cost.rate", tier="below") > 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_a_law_is_a_distribution(law):
    given = law_choice("test", Tokens).model_validate({law.kind: PARAMETERS[law.kind]}).law()
    probability = np.linspace(0.01, 0.99, 99)
    values = given.quantile(probability)
    assert np.all(np.diff(values) > 0) and values[0] > 0
    np.testing.assert_allclose(given.cdf(values), probability, rtol=1e-6)
    # the mean is the integral of the survival, and of the quantile
    fine = given.quantile((np.arange(200_000) + 0.5) / 200_000)
    np.testing.assert_allclose(np.mean(fine), given.mean, rtol=2e-2)
    np.testing.assert_allclose(given.restricted_mean(values[50]), np.mean(np.minimum(fine, values[50])), rtol=1e-3)
    # transforms: 1 - s mean near zero
    small = 1e-6 / given.mean
    np.testing.assert_allclose(np.real(given.laplace_deficit(small)), small * given.mean, rtol=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_a_plan_runs_with_every_law(law):
    parameters = PARAMETERS[law.kind]
    found = planned(
        workload__chat__new_tokens={law.kind: parameters},
        compare=["all_tiers"],
        slo=None,
        workload__chat__pauses={"any": {"share": 1.0, law.kind: parameters}},
    )
    shares = [
        found.value(f"reuse.{step}", arm="all_tiers", tier="", population="")
        for step in ("ceiling", "resident", "timely")
    ]
    assert 1 >= shares[0] >= shares[1] - 1e-12 >= shares[2] - 2e-12 > 0


def test_every_law_is_tried():
    assert set(PARAMETERS) == {law.kind for law in LAWS}


def test_every_kind_of_population_is_in_the_test_study():
    assert {kind_of(record) for record in POPULATIONS} == {p.kind for p in parse_study(STUDY).record.workload.values()}


@pytest.mark.parametrize("name", catalogue.names("gpus"))
def test_every_gpu_preset_makes_a_study(name):
    assert parse_study(STUDY, "t", {"deployment.gpu.preset": name}).record.deployment.gpu.preset == name


@pytest.mark.parametrize("name", catalogue.names("tiers") + catalogue.names("drives"))
def test_every_tier_preset_makes_a_study(name):
    tiers = {"hbm": {"kind": "hbm"}, "below": {"preset": name, "capacity": "1 TB"}}
    assert parse_study(STUDY, "t", {"tiers": tiers}).record.tiers["below"].preset.startswith(name)


WORKLOADS = {
    "a day": {"workload__chat__day": [{"share": 0.3, "factor": 2.0}, {"share": 0.7, "factor": 0.5}]},
    "pinned": {"policy__pinned": ["system"]},
    "namespaces": {"workload__chat__tenants": 3, "workload__chat__identity": {"adapter": 4}},
    "agents": {"workload__chat__arrivals": None, "workload__chat__agents": 300},
    "retention": {"policy__retention": "10 min"},
    "whole contexts": {"policy__touch": "head_first"},
    "several kinds": {
        "workload__quick": {
            "kind": "sessions",
            "arrivals": "0.1 /s",
            "first_tokens": "1k tokens",
            "new_tokens": "100 tokens",
            "output_tokens": "50 tokens",
            "turns": {"geometric": {"mean": 4}},
            "pauses": {"tool": {"share": 1, "lognormal": {"median": "5 s", "p90": "20 s"}}},
        }
    },
}


def resident(found, **where):
    return found.value("reuse.resident", arm="all_tiers", population="", **where)


@pytest.mark.parametrize("rule", EVICTIONS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_plan_runs_with_every_eviction_rule(rule, workload):
    """Parts by tier add up, and nothing finds more than what is offered."""
    small = {"tiers__dram__capacity": "64 GiB", "tiers__nvme__count": 1, "tiers__nvme__capacity": "100 GB"}
    found = planned(compare=["all_tiers"], policy__eviction=rule, **small, **WORKLOADS[workload])
    total = resident(found, tier="")
    ceiling = found.value("reuse.ceiling", arm="all_tiers", tier="", population="")
    assert 0.0 < total <= ceiling + 1e-9
    assert sum(resident(found, tier=tier) for tier in ("hbm", "dram", "nvme")) == pytest.approx(total)


@pytest.mark.parametrize("rule", EVICTIONS)
def test_every_eviction_rule_over_an_axis_equals_its_values_one_by_one(rule):
    given = {"compare": ["all_tiers"], "policy__eviction": rule, "tiers__nvme__count": 1}
    many = planned(sweep={"tiers.dram.capacity": ["16 GiB", "256 GiB"]}, **given)
    for k, size in enumerate(("16 GiB", "256 GiB")):
        one = planned(tiers__dram__capacity=size, **given)
        axis = many.value("reuse.resident", arm="all_tiers", tier="", population="")
        assert axis[k] == pytest.approx(resident(one, tier=""), abs=1e-3)


@pytest.mark.parametrize("rule", EVICTIONS)
def test_every_eviction_rule_says_what_it_is_not_modelled_with(rule):
    """One clear message, or a plan."""
    for wanted, policy in (
        (EVICTIONS[rule].stack, {"policy__chain": "exclusive"}),
        (EVICTIONS[rule].lifetime is not None, {"policy__retention": "1 h", "policy__retention_renewed": False}),
    ):
        if wanted:
            assert resident(planned(compare=["all_tiers"], policy__eviction=rule, **policy), tier="") > 0
        else:
            with pytest.raises(StudyError, match=f"is modelled under eviction .*{rule}") as refused:
                planned(compare=["all_tiers"], policy__eviction=rule, **policy)
            assert len(refused.value.problems) == 1


def test_a_retention_must_be_there_to_be_renewed_or_not():
    with pytest.raises(StudyError, match="needs a retention"):
        planned(policy__retention_renewed=False)
    with pytest.raises(StudyError, match="use chain: inclusive with retention_renewed: false"):
        planned(policy__retention="1 h", policy__retention_renewed=False, policy__chain="exclusive")
