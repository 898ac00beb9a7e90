"""Sweeps, choices, draws: axes and cases."""

from __future__ import annotations

import numpy as np
import pytest

from kvmodel.results.table import Axis
from kvmodel.study.expand import Expansion, expand
from kvmodel.study.run import _windows
from kvmodel.study.sampling import drawn, stratified, stream
from kvmodel.system.case import Case
from tests.studies import planned, study

SWEEP = {"tiers.dram.capacity": {"geomspace": ["64 GiB", "1 TiB", 5]}, "deployment.prefill.mfu": [0.3, 0.5]}
UNCERTAIN = {
    "prices.dram": {"loguniform": ["4 USD/GB", "16 USD/GB"]},
    "workload.chat.arrivals": {"lognormal": {"median": "0.2 /s", "sigma": 0.2}},
}


def test_each_sweep_is_an_axis_in_file_order_and_draws_come_last():
    found = expand(study(sweep=SWEEP, uncertain=UNCERTAIN, monte_carlo={"draws": 7}))
    assert [axis.name for axis in found.axes] == [*SWEEP, "draw"]
    case = found.case("base", {})
    assert case.tiers["dram"].capacity.shape == (5, 1, 1)
    assert case.deployment.prefill.mfu.shape == (1, 2, 1)
    assert case.prices.dram.shape == case.workload["chat"].arrivals.shape == (1, 1, 7)
    np.testing.assert_allclose(case.tiers["dram"].capacity[:, 0, 0], 2.0 ** np.arange(36, 41))


def test_numbers_inside_laws_can_be_swept():
    found = expand(study(sweep={"workload.chat.new_tokens.lognormal.median": ["100 tokens", "1k tokens"]}))
    law = found.case("base", {}).workload["chat"].new_tokens
    np.testing.assert_allclose(np.ravel(law.median), [100, 1000])


def test_names_become_cases():
    found = expand(
        study(sweep={"model.preset": ["llama-3.1-8b", "qwen3-32b"], "policy.chain": ["inclusive", "exclusive"]})
    )
    assert len(found.cases) == 4 and not found.axes
    assert {found.case(name, {}).model.preset for name in found.cases} == {"llama-3.1-8b", "qwen3-32b"}


def test_draws_depend_on_seed_and_path_only():
    law = {"uniform": [1.0, 3.0]}
    alone = drawn("prices.dram", law, seed=7, count=100)
    np.testing.assert_array_equal(alone, drawn("prices.dram", law, seed=7, count=100))
    assert not np.array_equal(alone, drawn("prices.nvme", law, seed=7, count=100))
    assert not np.array_equal(alone, drawn("prices.dram", law, seed=8, count=100))
    first = expand(study(uncertain=UNCERTAIN, monte_carlo={"draws": 9, "seed": 3})).arrays
    second = expand(study(uncertain=dict(reversed(UNCERTAIN.items())), monte_carlo={"draws": 9, "seed": 3})).arrays
    for path in UNCERTAIN:
        np.testing.assert_array_equal(first[path][1], second[path][1])


def test_draws_follow_their_law():
    # stratified: the empirical distribution function is within 1/n of the law's everywhere
    sample = np.sort(drawn("x", {"exponential": {"mean": 2.0}}, seed=1, count=400))
    exact = 1 - np.exp(-sample / 2.0)
    assert np.abs(exact - (np.arange(400) + 0.5) / 400).max() < 1 / 400
    strata = np.sort(stratified(stream(0, "y"), 50))
    assert np.all(np.floor(strata * 50) == np.arange(50))


@pytest.mark.parametrize("sizes", [(3,), (1000,), (5, 2000), (40, 3, 900), (450, 2)])
def test_windows_cover_every_point_once(sizes):
    axes = tuple(Axis("draw" if i == len(sizes) - 1 else f"s{i}", np.arange(n)) for i, n in enumerate(sizes))
    arrays = {f"workload.{axis.name}": (i, axis.values) for i, axis in enumerate(axes)}
    seen = np.zeros(sizes, int)
    for window in _windows(Expansion({"base": {"workload": {}}}, arrays, axes), "base"):
        seen[tuple(window.get(i, slice(None)) for i in range(len(sizes)))] += 1
    assert np.all(seen == 1)


def test_prices_are_not_cut():
    axes = (Axis("tiers.dram.capacity", np.arange(10)), Axis("draw", np.arange(100_000)))
    arrays = {"tiers.dram.capacity": (0, axes[0].values), "prices.dram": (1, axes[1].values)}
    assert list(_windows(Expansion({"base": {"workload": {}}}, arrays, axes), "base")) == [{0: slice(0, 10)}]


def test_nested_prefixes_are_worked_on_in_smaller_windows():
    axes = (Axis("draw", np.arange(1000)),)
    arrays = {"workload.a.arrivals": (0, axes[0].values)}
    workload = {"a": {}, "b": {"under": None}, "c": {"under": "b"}, "d": {"under": "c"}}
    counts = []
    for names in ("ab", "abc", "abcd"):
        expansion = Expansion({"base": {"workload": {n: workload[n] for n in names}}}, arrays, axes)
        counts.append(len(list(_windows(expansion, "base"))))
    assert counts[0] < counts[1] < counts[2]


def test_windows_change_nothing(monkeypatch):
    changes = {
        "sweep": {"tiers.dram.capacity": ["64 GiB", "1 TiB", "2 TiB"]},
        "uncertain": UNCERTAIN,
        "monte_carlo": {"draws": 6},
        "compare": ["local_reuse", "all_tiers"],
    }
    whole = planned(**changes)
    monkeypatch.setattr("kvmodel.study.run.POINTS_AT_ONCE", 4)
    cut = planned(**changes)
    assert [row.key for row in whole] == [row.key for row in cut]
    for a, b in zip(whole, cut, strict=True):
        shape = np.broadcast_shapes(np.shape(a.value), np.shape(b.value))
        np.testing.assert_allclose(np.broadcast_to(a.value, shape), np.broadcast_to(b.value, shape), rtol=1e-9)


def test_a_frame_has_one_line_per_row_and_sweep_point():
    found = planned(sweep={"tiers.dram.capacity": ["64 GiB", "1 TiB"]}, uncertain=UNCERTAIN, monte_carlo={"draws": 20})
    frame = found.to_frame()
    assert len(frame) == 2 * len(found)
    assert {"tiers.dram.capacity", "p05", "p50", "p95"} <= set(frame.columns)
    known = frame.dropna(subset=["p05", "p95"])
    assert (known.p05 <= known.p95).all()


def test_the_case_knows_its_axes():
    assert Case.model_validate(study().case_data).axes == 0
    assert expand(study(sweep=SWEEP)).case("base", {}).axes == 2
