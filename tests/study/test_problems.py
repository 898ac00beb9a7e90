"""Validation errors as problems: the user's place, one per mistake, with what is allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from kvmodel.errors import Problem
from kvmodel.quantity import Bytes, Record, Seconds, Tokens
from kvmodel.study.problems import problems_of
from kvmodel.study.resolve import apply_overrides, apply_scenarios
from kvmodel.study.source import Tree, read_text


class Dram(Record):
    """Host memory."""

    kind: Literal["dram"] = "dram"
    capacity: Bytes
    """Bytes it offers. All devices together."""
    scope: Literal["gpu", "node", "rack"] = "node"


class Nvme(Record):
    """Drives."""

    kind: Literal["nvme"] = "nvme"
    capacity: Bytes
    count: int = 1
    placement: bool = Field(False, alias="fdp")


class Lognormal(Record):
    """A law."""

    median: Seconds
    p90: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Lognormal:
        if self.p90 < self.median:
            raise ValueError("p90 must not be below the median")
        return self


class LawChoice(Record):
    """One law."""

    lognormal: Lognormal | None = None


def _branch(given: Any) -> str:
    return "law" if isinstance(given, dict) else "lognormal"


# the branch of plain values is, on purpose, named like a key of the other branch
PlainPause = Annotated[Seconds, Tag("lognormal")]


class Study(Record):
    """A small study with every shape of field."""

    name: str
    tiers: dict[str, Annotated[Dram | Nvme, Field(discriminator="kind")]] = Field(default_factory=dict)
    pause: Annotated[PlainPause | Annotated[LawChoice, Tag("law")], Discriminator(_branch)] = 1.0
    mixed: Bytes | LawChoice | Lognormal = 0.0
    blocks: Literal["auto"] | Tokens = "auto"
    drives: list[Nvme] = Field(default_factory=list)
    pair: tuple[Dram, Nvme] | None = None


def found(text: str) -> list[tuple[int | None, str, str]]:
    tree = read_text("name: x\n" + text, "study.yaml")
    return [(problem.line, problem.path, problem.message) for problem in problems(tree)]


def problems(tree: Tree) -> list[Problem]:
    with pytest.raises(ValidationError) as caught:
        Study.model_validate(tree.data)
    return problems_of(caught.value, tree, Study)


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("nmae: y\n", "nmae", "unknown key 'nmae'; did you mean 'name'?"),
        ("zzz: y\n", "zzz", "unknown key 'zzz'; there are name, tiers, pause, mixed, blocks, drives, pair"),
        ("tiers: {a: {kind: dram, capacity: 1, scoope: x}}\n", "tiers.a.scoope", "did you mean 'scope'?"),
        (
            "tiers: {a: {kind: nvme, capacity: 1, placement: true}}\n",
            "tiers.a.placement",
            "unknown key 'placement'; there are kind, capacity, count, fdp",
        ),
        ("tiers: {nvme: {kind: nvme, capacity: 2G}}\n", "tiers.nvme.capacity", "'2G' does not say of what"),
        (
            "tiers: {a: {kind: dram}}\n",
            "tiers.a.capacity",
            "is missing: Bytes it offers. All devices together; expected a size in bytes, for example '64 GiB'",
        ),
        (
            "tiers: {a: {kind: drm, capacity: 1}}\n",
            "tiers.a.kind",
            "'drm' is not one of dram, nvme; did you mean 'dram'?",
        ),
        ("tiers: {a: {capacity: 1}}\n", "tiers.a.kind", "is missing; one of dram, nvme"),
        (
            "tiers: {a: {kind: dram, capacity: 1, scope: nod}}\n",
            "tiers.a.scope",
            "'nod' is not one of gpu, node, rack; did you mean 'node'?",
        ),
        ("tiers: {a: 3}\n", "tiers.a", "expected a mapping of fields, got 3"),
        ("tiers: 3\n", "tiers", "expected a mapping, got 3"),
        ("tiers: {a: {kind: dram, capacity: NO}}\n", "tiers.a.capacity", "'NO' is not a number with a unit"),
        (
            "tiers: {a: {kind: dram, capacity: true}}\n",
            "tiers.a.capacity",
            "expected a size in bytes, for example '64 GiB', got true",
        ),
        ("tiers: {a: {kind: dram, capacity: -1}}\n", "tiers.a.capacity", "must be at least 0 B"),
        ("tiers: {a: {kind: dram, capacity: 20 Gb/s}}\n", "tiers.a.capacity", "is a bandwidth; expected a size"),
        ("tiers: {a: {kind: nvme, capacity: 1, count: 1.5}}\n", "tiers.a.count", "expected a whole number, got 1.5"),
        ("tiers: {a: {kind: nvme, capacity: 1, fdp: maybe}}\n", "tiers.a.fdp", "expected true or false, got 'maybe'"),
        ("drives: [{capacity: 1}, {capacity: 1, coutn: 2}]\n", "drives.1.coutn", "did you mean 'count'?"),
        ("drives: {a: 1}\n", "drives", "expected a list, got a mapping (a)"),
        ("pair: [{capacity: 1}, {capacity: 1, cuont: 1}]\n", "pair.1.cuont", "did you mean 'count'?"),
        (
            "pause: {lognormal: {median: 3 GiB, p90: 1}}\n",
            "pause.lognormal.median",
            "is a size in bytes; expected a time",
        ),
        ("pause: {lognormal: {median: 3, p90: 1}}\n", "pause.lognormal", "p90 must not be below the median"),
        (
            "pause: {lognormal: {medain: 3, p90: 4}}\n",
            "pause.lognormal.medain",
            "unknown key 'medain'; did you mean 'median'?",
        ),
        ("pause: {lognormall: {}}\n", "pause.lognormall", "unknown key 'lognormall'; did you mean 'lognormal'?"),
        ("pause: later\n", "pause", "'later' is not a number with a unit; expected a time"),
        ("mixed: 3 s\n", "mixed", "'3 s' is a time; expected a size in bytes"),
        ("mixed: {median: 3, p90: 4, p99: 5}\n", "mixed.p99", "unknown key 'p99'"),
        ("mixed: {lognormal: {median: 3}}\n", "mixed.lognormal.p90", "is missing"),
        ("mixed: [1, 2, x]\n", "mixed", "expected a size in bytes, for example '64 GiB', got a list"),
        ("blocks: autoo\n", "blocks", "'autoo' is not one of auto; did you mean 'auto'?; or 'autoo' is not a number"),
        ("blocks: {}\n", "blocks", "got an empty mapping"),
    ],
)
def test_one_mistake_is_one_problem_at_its_place(text: str, path: str, says: str) -> None:
    ((line, place, said),) = found(text)
    assert (line, place) == (2, path)
    assert says in said
    assert "Value error" not in said and "Input" not in said


def test_text_fields_ask_for_quotes_around_numbers() -> None:
    (problem,) = problems(read_text("name: 0.20\n", "s"))
    assert problem.message == "expected text, got 0.2; put it in quotes"
    (problem,) = problems(read_text("name: [a]\n", "s"))
    assert problem.message == "expected text, got a list"


def test_all_mistakes_of_a_file_in_its_order() -> None:
    text = "tiers:\n  a: {kind: dram, capcity: 1 TiB}\n  b: {kind: nvme, capacity: x, count: y}\nfoo: 1\nblocks: -1\n"
    assert [(line, path) for line, path, _ in found(text)] == [
        (3, "tiers.a.capcity"),
        (4, "tiers.b.capacity"),
        (4, "tiers.b.count"),
        (5, "foo"),
        (6, "blocks"),
    ]


def test_a_missing_field_stands_at_its_record() -> None:
    tree = read_text("tiers:\n  a:\n    kind: dram\n", "s")
    assert [(p.line, p.path) for p in problems(tree)] == [(1, "name"), (2, "tiers.a.capacity")]


def test_what_was_set_elsewhere_is_said_so() -> None:
    tree = read_text(
        "name: x\ntiers: {a: {kind: dram, capacity: 1}}\nscenarios:\n  big: {tiers.a.capacity: 1 s}\n", "s"
    )
    by_set = apply_overrides(tree, {"tiers.a.capacity": "1 s"})
    by_scenario = apply_scenarios(tree, ["big"])
    for changed in (by_set, by_scenario):
        changed.data.pop("scenarios")
    (problem,) = problems(by_set)
    assert problem.line is None and problem.message.endswith("(given by --set)")
    (problem,) = problems(by_scenario)
    assert problem.line == 4 and problem.message.endswith("(given by scenario 'big')")


def test_data_merged_with_more_than_the_file_holds() -> None:
    tree = read_text("name: x\ntiers:\n  a: {preset: p}\n", "s")
    merged = {"name": "x", "tiers": {"a": {"kind": "dram", "capacity": np.array([1.0, -1.0]), "count": 2}}}
    assert [(p.line, p.path, p.message) for p in problems(replace(tree, data=merged))] == [
        (3, "tiers.a.capacity", "must be at least 0 B, got -1.00 B"),
        (3, "tiers.a.count", "unknown key 'count'; there are kind, capacity, scope"),
    ]


keys = st.sampled_from(
    [
        "name",
        "tiers",
        "pause",
        "mixed",
        "blocks",
        "drives",
        "pair",
        "kind",
        "capacity",
        "lognormal",
        "median",
        "p90",
        "law",
        "dram",
        "nvme",
        "fdp",
        "0",
        "x",
    ]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["dram", "nvme", "auto", "2G", "1 s", "1 TiB"]),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=300)
@given(st.dictionaries(keys, values, max_size=6))
def test_any_wrong_tree_gives_problems_whose_places_exist(data: dict[str, Any]) -> None:
    try:
        Study.model_validate(data)
    except ValidationError as error:
        found = problems_of(error, Tree("fuzz", data, {(): (1, 1)}), Study)
        assert 0 < len(found) <= error.error_count()
        assert len({problem.path for problem in found}) == len(found)
        for problem in found:
            assert problem.message and problem.line == 1
            node: Any = data
            for key in problem.path.split(".")[:-1]:
                node = node[int(key)] if isinstance(node, list) else node[key]
