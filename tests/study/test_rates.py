"""Rates that change, as a study states them."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from kvmodel.errors import StudyError
from kvmodel.system.case import Case
from kvmodel.workloads.bursts import Bursts
from tests.studies import study

BURSTS = {"share": 0.2, "factor": 4.0, "mean_length": "10 min"}
DAY = [{"share": 0.5, "factor": 1.0}, {"share": 0.5, "factor": 2.0}]


def case_of(**changes):
    return Case.model_validate(study(**changes).case_data)


def test_the_stated_rate_is_the_mean():
    sessions = case_of(workload__chat__bursts=BURSTS).sessions["chat"]
    shares, factors = sessions.rate_levels
    assert sessions.varies and float(np.dot(shares, factors)) == pytest.approx(1.0)
    assert float(sessions.session_rate) == 0.2 and float(sessions.bursts.mean_length) == 600.0


def test_a_burst_holds_no_more_than_all_sessions():
    assert float(Bursts(share=0.25, factor=4.0, mean_length=1.0).factor) == 4.0
    with pytest.raises(ValidationError, match="no more than 1 / share"):
        Bursts(share=0.25, factor=4.1, mean_length=1.0)


@pytest.mark.parametrize(
    "changes", [{"workload__chat__day": DAY}, {"workload__chat__arrivals": None, "workload__chat__agents": 10}]
)
def test_bursts_stand_alone(changes):
    with pytest.raises(StudyError, match="not beside a day curve or agents"):
        case_of(workload__chat__bursts=BURSTS, **changes)


@pytest.mark.parametrize(
    ("second", "message"),
    [({"bursts": {**BURSTS, "factor": 3.0}}, "share their bursts"), ({"day": DAY}, "use one of the two")],
)
def test_populations_have_one_course_of_the_rate(second, message):
    chat = study().case_data["workload"]["chat"]
    with pytest.raises((StudyError, ValidationError), match=message):
        case_of(workload__chat__bursts=BURSTS, workload__more={**chat, **second})
    same = case_of(workload__chat__bursts=BURSTS, workload__more={**chat, "bursts": BURSTS})
    assert same.sessions["more"].varies


def test_a_share_is_deleted():
    assert float(case_of(workload__chat__deleted=0.3).sessions["chat"].deleted) == 0.3
    with pytest.raises((StudyError, ValidationError), match="deleted"):
        case_of(workload__chat__deleted=1.5)
