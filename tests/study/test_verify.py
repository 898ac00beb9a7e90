"""A study's residency against the simulation of its sessions."""

from __future__ import annotations

import pytest

from kvmodel.study.verify import verified
from kvmodel.system.case import Case
from tests.studies import study

SMALL = {"tiers__dram__capacity": "64 GiB", "tiers__nvme__count": 1, "tiers__nvme__capacity": "100 GB"}


def test_the_closed_form_stands_beside_its_simulation():
    case = Case.model_validate(study(**SMALL).case_data)
    found = list(verified(case, tuple(case.tiers), "all_tiers", turns=40_000))
    assert {a.tier for a in found} == set(case.tiers) and len(found) == 3 * 2 * 3
    for closed, simulated, error in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert [a.quantity for a in (closed, simulated, error)] == [
            "verify.closed_form",
            "verify.simulated",
            "verify.standard_error",
        ]
        assert abs(closed.value - simulated.value) <= 0.015 + 3 * error.value


@pytest.mark.parametrize(
    "changes",
    [{"bursts": {"share": 0.2, "factor": 4.0, "mean_length": 60.0}}, {"deleted": 0.5}],
    ids=["bursts", "deleted sessions"],
)
def test_what_the_sessions_state_is_simulated(changes):
    """Without it the two would be further apart than the bar: the rate or the tokens held are others."""
    case = Case.model_validate(study(**SMALL, **{f"workload__chat__{k}": v for k, v in changes.items()}).case_data)
    found = list(verified(case, ("hbm",), "local_reuse", turns=40_000))
    for closed, simulated, error in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert abs(closed.value - simulated.value) <= 0.015 + 3 * error.value
