"""Overrides, scenarios and presets laid over a study tree, with the origin of every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvmodel.errors import KvmodelError, Problem, StudyError
from kvmodel.presets import catalogue
from kvmodel.study.resolve import (
    UnknownPathError,
    UnmergedError,
    apply_overrides,
    apply_scenarios,
    get_path,
    locate,
    merge_presets,
    parse_assignment,
    with_path,
)
from kvmodel.study.source import Tree, read_text

STUDY = """\
model: {preset: tiny, layers: 3}
tiers:
  dram: {kind: dram, capacity: 1 TiB}
  nvme: {preset: fast-drive, count: 4, endurance: {dwpd: 3}}
compare: [no_reuse, all_tiers]
scenarios:
  long: {tiers.dram.capacity: 2 TiB, compare.1: local_reuse}
  longer: {extends: long, tiers.nvme.count: 8}
  both: {extends: [long, longer], tiers.dram.capacity: 4 TiB}
sweep: {tiers.dram.capacity: [1, 2]}
targets: {}
"""
PRESETS = {
    ("llms", "tiny"): """\
title: Tiny
layers: {value: 2, basis: published, source: card}
heads: {value: 4, basis: derived}
sources: {card: {title: Model card, date: 2026-01-02, url: https://example.org/card}}
""",
    ("drives", "fast-drive"): """\
title: Fast drive
kind: nvme
capacity: {value: 6.4 TB, basis: datasheet, source: sheet, note: usable}
endurance: {dwpd: {value: 3, basis: datasheet, source: sheet}, years: {value: 5 yr, basis: assumed}}
sources: {sheet: {title: Data sheet}}
""",
}
PLACES = {"model": "llms", "tiers.*": "tiers"}


@pytest.fixture(autouse=True)
def _small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "names", lambda family: tuple(n for f, n in PRESETS if f == family))
    monkeypatch.setattr(catalogue, "load", lambda *key: catalogue.parse(PRESETS[key], *key))


@pytest.fixture
def tree() -> Tree:
    return read_text(STUDY, "study.yaml")


def messages(error: pytest.ExceptionInfo[StudyError]) -> list[str]:
    return [problem.message for problem in error.value.problems]


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tiers.dram.capacity", "1 TiB"),
        ("compare.1", "all_tiers"),
        ("sweep.tiers.dram.capacity.0", 1),
        ("scenarios.longer.tiers.nvme.count", 8),
    ],
)
def test_paths_reach_values_also_through_dotted_keys(tree: Tree, path: str, value: Any) -> None:
    assert get_path(tree.data, path) == value
    assert get_path(with_path(tree.data, path, "new"), path) == "new"


def test_with_path_copies_only_what_is_on_the_way(tree: Tree) -> None:
    draws = np.linspace(0, 1, 5)
    changed = with_path(tree.data, "tiers.dram.capacity", draws)
    assert get_path(changed, "tiers.dram.capacity") is draws
    assert tree.data["tiers"]["dram"]["capacity"] == "1 TiB"
    assert changed["model"] is tree.data["model"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("tiers.dramm.capacity", "no 'dramm' in 'tiers'; did you mean 'dram'?"),
        ("teirs.dram", "no 'teirs' at the top of the study; did you mean 'tiers'?"),
        ("compare.7", "entries 0 to 1, not '7'"),
        ("compare.x", "entries 0 to 1, not 'x'"),
        ("compare.1.x", "'compare.1' is a value"),
        ("tiers..dram", "no ''"),
        ("", "no ''"),
    ],
)
def test_a_path_that_leads_nowhere_names_the_nearest(tree: Tree, path: str, says: str) -> None:
    with pytest.raises(UnknownPathError, match="leads nowhere") as caught:
        get_path(tree.data, path)
    assert says in str(caught.value)


def test_new_keys_are_made_where_a_field_may_be(tree: Tree) -> None:
    assert locate(tree.data, "tiers.dram.count", create=True) == ("tiers", "dram", "count")
    inside_preset = locate(tree.data, "tiers.nvme.wear.model.kind", create=True)
    assert inside_preset == ("tiers", "nvme", "wear", "model", "kind")
    assert locate(tree.data, "targets.endurance.lifetime", create=True) == ("targets", "endurance.lifetime")
    with pytest.raises(UnknownPathError):
        locate(tree.data, "tiers.dram.wear.kind", create=True)


# --- overrides -----------------------------------------------------------------------------------


def test_overrides_read_text_as_yaml_does(tree: Tree) -> None:
    changed = apply_overrides(
        tree,
        {
            "tiers.dram.capacity": "1e3",
            "model.name": "NO",
            "compare": "[no_reuse]",
            "tiers.nvme.count": 2,
            "targets.endurance.lifetime": ">= 5 yr",
        },
    )
    assert changed.data["tiers"]["dram"]["capacity"] == 1000.0
    assert changed.data["model"]["name"] == "NO"
    assert changed.data["compare"] == ["no_reuse"]
    assert changed.data["tiers"]["nvme"]["count"] == 2
    assert changed.data["targets"] == {"endurance.lifetime": ">= 5 yr"}
    assert changed.origin(("compare", 0)) == ("set", "compare")
    assert changed.origin(("tiers", "dram")) is None
    assert tree.data == read_text(STUDY, "s").data


def test_bad_overrides_are_reported_together(tree: Tree) -> None:
    with pytest.raises(StudyError) as caught:
        apply_overrides(tree, {"tiers.dramm.x": "1", "compare": "[1", "model.layers": "1e999", "name": "x"})
    assert [problem.path for problem in caught.value.problems] == ["tiers.dramm.x", "compare", "model.layers"]
    assert str(caught.value).startswith("--set: 3 problems")


def test_assignments() -> None:
    assert parse_assignment("a.b=x=y") == ("a.b", "x=y")
    assert parse_assignment(" a = 1 TiB ") == ("a", "1 TiB")
    for text in ("a.b", "=1", " = 1"):
        with pytest.raises(KvmodelError, match="path=value"):
            parse_assignment(text)


# --- scenarios -----------------------------------------------------------------------------------


def test_scenarios_apply_in_order_after_what_they_extend(tree: Tree) -> None:
    changed = apply_scenarios(tree, ["longer"])
    assert changed.data["tiers"]["dram"]["capacity"] == "2 TiB"
    assert changed.data["tiers"]["nvme"]["count"] == 8
    assert changed.data["compare"] == ["no_reuse", "local_reuse"]
    assert apply_scenarios(tree, ["long", "both"]).data["tiers"]["dram"]["capacity"] == "4 TiB"
    assert apply_scenarios(tree, ["both", "long"]).data["tiers"]["dram"]["capacity"] == "4 TiB"  # each once
    assert apply_scenarios(tree, []) == tree


def test_a_value_from_a_scenario_is_found_in_its_line(tree: Tree) -> None:
    changed = apply_scenarios(tree, ["longer"])
    assert changed.position(("tiers", "dram", "capacity")) == (7, 10)
    assert changed.position(("tiers", "nvme", "count")) == (8, 27)
    assert changed.origin(("tiers", "dram", "capacity")) == ("scenario", "long")


def test_wrong_scenarios() -> None:
    tree = read_text(
        "a: {b: 1}\nscenarios:\n  one: {a.c.d: 1, x.y: 2}\n  two: {extends: three}\n"
        "  three: {extends: two}\n  four: 7\n  five: {extends: on}\n",
        "s",
    )
    with pytest.raises(StudyError) as caught:
        apply_scenarios(tree, ["one"])
    assert [(p.line, p.path) for p in caught.value.problems] == [(3, "scenarios.one.a.c.d"), (3, "scenarios.one.x.y")]
    for name, says in (
        ("two", "extend each other: two -> three -> two"),
        ("four", "expected a mapping"),
        ("five", "unknown scenario 'on'; did you mean 'one'"),
        ("thre", "did you mean 'three'"),
    ):
        with pytest.raises(StudyError, match=says):
            apply_scenarios(tree, [name])
    with pytest.raises(StudyError, match="unknown scenario 'x'"):
        apply_scenarios(read_text("a: 1\n", "s"), ["x"])
    with pytest.raises(StudyError, match="expected a mapping of scenario names"):
        apply_scenarios(read_text("scenarios: [x]\n", "s"), ["x"])


# --- presets -------------------------------------------------------------------------------------


def test_a_preset_lies_below_the_users_own_fields(tree: Tree) -> None:
    data, _ = merge_presets(tree, PLACES)
    assert data["model"] == {"preset": "tiny (modified: layers)", "layers": 3, "heads": 4}
    assert data["tiers"]["nvme"] == {
        "preset": "fast-drive",
        "kind": "nvme",
        "capacity": "6.4 TB",
        "count": 4,
        "endurance": {"dwpd": 3, "years": "5 yr"},
    }
    assert data["tiers"]["dram"] == tree.data["tiers"]["dram"]
    assert list(data) == list(tree.data)


def test_overrides_inside_a_preset_are_shown_as_modified(tree: Tree) -> None:
    changed = apply_overrides(tree, {"tiers.nvme.endurance.years": "3 yr", "tiers.nvme.capacity": "3.2 TB"})
    data, provenance = merge_presets(changed, PLACES)
    assert data["tiers"]["nvme"]["preset"] == "fast-drive (modified: endurance.years, capacity)"
    assert data["tiers"]["nvme"]["endurance"] == {"dwpd": 3, "years": "3 yr"}
    assert provenance["tiers.nvme.endurance.years"].origin == "set"


def test_every_value_has_a_provenance(tree: Tree) -> None:
    changed = apply_scenarios(apply_overrides(tree, {"tiers.nvme.count": "5"}), ["long"])
    _, provenance = merge_presets(changed, PLACES)
    layers, heads = provenance["model.layers"], provenance["model.heads"]
    assert (layers.origin, layers.line, layers.basis) == ("study", 1, None)
    assert (heads.origin, heads.name, heads.basis, heads.source) == ("preset", "tiny", "derived", None)
    capacity = provenance["tiers.nvme.capacity"]
    assert (capacity.basis, capacity.source, capacity.note) == ("datasheet", "Data sheet", "usable")
    assert (provenance["tiers.nvme.count"].origin, provenance["tiers.nvme.count"].line) == ("set", None)
    dram = provenance["tiers.dram.capacity"]
    assert (dram.origin, dram.name, dram.line) == ("scenario", "long", 7)
    assert provenance["tiers.nvme.kind"].origin == "preset"


def test_a_choice_of_another_kind_replaces_the_one_below(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "title: T\nrate: {kind: measured, file: {value: 1, basis: assumed}}\n"
    monkeypatch.setitem(PRESETS, ("gpus", "chooser"), text)
    tree = read_text("gpu: {preset: chooser, rate: {kind: roofline}}\n", "s")
    data, provenance = merge_presets(tree, {"gpu": "gpus"})
    assert data["gpu"] == {"preset": "chooser (modified: rate)", "rate": {"kind": "roofline"}}
    assert "gpu.rate.file" not in provenance


def test_wrong_presets_are_reported_together_with_their_lines() -> None:
    tree = read_text(
        "model: {preset: tinny}\ntiers:\n  a: {preset: fast-drve}\n  b: {preset: 7}\n"
        "  c: {kind: dram, preset: fast-drive}\n  d: 3\n",
        "s",
    )
    with pytest.raises(UnmergedError) as caught:
        merge_presets(tree, PLACES)
    assert [(p.line, p.path) for p in caught.value.problems] == [
        (1, "model.preset"),
        (3, "tiers.a.preset"),
        (4, "tiers.b.preset"),
        (5, "tiers.c.preset"),
    ]
    assert caught.value.data == tree.data
    others = [
        Problem("tiers.a.capacity", "is missing", 3),
        Problem("name", "is missing", 1),
        Problem("tiers.aa", "x", 2),
        Problem("tiers.a", "x", 3),
    ]
    together = caught.value.with_others(others).problems
    assert {problem.path for problem in together} == {
        "model.preset",
        "tiers.a.preset",
        "tiers.b.preset",
        "tiers.c.preset",
        "name",
        "tiers.aa",
    }
    assert "did you mean 'tiny'?" in messages(caught)[0]
    assert "in tiers or drives; did you mean 'fast-drive'?" in messages(caught)[1]
    assert "named by text, got 7" in messages(caught)[2]
    assert "is of kind 'nvme', but kind says 'dram'" in messages(caught)[3]


def test_places_that_hold_no_preset_are_left_alone() -> None:
    tree = read_text("model: none\ntiers: [{preset: fast-drive}, 3]\n", "s")
    data, _ = merge_presets(tree, {**PLACES, "deployment.gpu": "gpus"})
    assert data["model"] == "none" and data["tiers"][0]["capacity"] == "6.4 TB" and data["tiers"][1] == 3
