"""Targets: what they are held against, and what happens where the plan does not tell them."""

from __future__ import annotations

import numpy as np

from kvmodel.results.table import Row, Table
from kvmodel.results.targets import missed, target_rows


def held(rows, targets, arm="all_tiers"):
    table = Table(tuple(rows), ())
    return list(target_rows(table, targets, arm))


def test_a_quantity_nobody_tells_is_missed():
    (row,) = held([Row("capacity.hbm_pool", -1.0, "B", "")], {"cost.per_qualified_session": "<= 1 USD"})
    assert row.flags[0].startswith("missed") and missed(Table((row,), ())) == [row]


def test_each_case_is_held_on_its_own():
    rows = [Row("reuse.timely", v, "", "", case=c, arm="all_tiers") for c, v in (("a", 0.2), ("b", 0.8))]
    rows.append(Row("capacity.hbm_pool", -1.0, "B", "", case="c"))
    assert [(r.case, float(r.value)) for r in held(rows, {"reuse.timely": ">= 0.5"})] == [("a", 0), ("b", 1), ("c", 0)]


def test_the_whole_of_the_arm_goes_before_its_parts_and_before_other_arms():
    rows = [
        Row("cost.rate", 1.0, "USD/s", "", tier="nvme"),
        Row("cost.rate", 9.0, "USD/s", "", arm="all_tiers"),
        Row("cost.rate", 5.0, "USD/s", "", arm="no_reuse"),
    ]
    assert [row.arm for row in held(rows, {"cost.rate": "<= 6 USD/s"})] == ["all_tiers"]


def test_a_quantity_told_per_population_is_held_against_each():
    rows = [Row("workload.turn_rate", rate, "/s", "", population=name) for name, rate in (("a", 1.0), ("b", 3.0))]
    assert [(r.population, float(r.value)) for r in held(rows, {"workload.turn_rate": "<= 2 /s"})] == [
        ("a", 1),
        ("b", 0),
    ]


def test_half_of_the_points_missed_is_missed():
    rows = held([Row("reuse.timely", np.array([0.2, 0.8]), "", "", arm="all_tiers")], {"reuse.timely": ">= 0.5"})
    assert rows[0].flags == ("met at 50% of the points",) and missed(Table(tuple(rows), ())) == rows
