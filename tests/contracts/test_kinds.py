"""What every kind of a list must obey: a new one is tested before its author writes a test."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from kvmodel.laws import LAWS, law_choice
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
