"""From a study file to a resolved study: read, override, merge presets, validate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvmodel.analyses.quantities import QUANTITIES
from kvmodel.errors import KvmodelError, Problem, StudyError
from kvmodel.results.targets import parse_target
from kvmodel.study.problems import problems_of
from kvmodel.study.resolve import (
    Provenance,
    UnmergedError,
    apply_overrides,
    apply_scenarios,
    laid_over,
    merge_presets,
)
from kvmodel.study.schema import PRESET_PLACES, QUESTION_KEYS, Study
from kvmodel.study.source import Tree, read_text, read_tree
from kvmodel.system.config_json import read_config_file


@dataclass(frozen=True)
class LoadedStudy:
    """A validated study with the tree it came from, so that numbers can be put back in at dotted paths."""

    source: Tree
    data: Mapping[str, Any]
    """The tree with presets merged in."""
    provenance: Mapping[str, Provenance]
    """Where each number comes from, by dotted path."""
    record: Study
    scenario: str = "base"
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The question in words."""
        return self.record.name

    @cached_property
    def case_data(self) -> dict[str, Any]:
        """The resolved tree of the case alone."""
        return {key: value for key, value in self.data.items() if key not in QUESTION_KEYS}

    def with_scenario(self, name: str) -> LoadedStudy:
        """The same study under one scenario, or several joined with '+' (later ones over earlier ones).

        Overrides stay on top: what is said on the command line beats what a file says.
        """
        tree = apply_overrides(apply_scenarios(self.source, name.split("+")), self.overrides)
        return replace(resolve(tree), scenario=name, overrides=self.overrides)

    def __repr__(self) -> str:
        record = self.record
        arms = ", ".join(record.compare)
        return (
            f"kvmodel study {record.name!r}: {record.model.name} on {record.deployment.gpu.count:g} GPUs, tiers "
            f"{' > '.join(record.tiers)}, populations {', '.join(record.workload)}; compares {arms}"
        )


def load_study(path: str | Path, overrides: Mapping[str, Any] | None = None) -> LoadedStudy:
    """Read, resolve and validate a study file.

    path: YAML file; overrides: dotted path -> value, laid over the file before presets are merged.
    Raises StudyError with all problems, each with line and path.
    """
    return _loaded(read_tree(Path(path)), overrides)


def parse_study(text: str, name: str = "study", overrides: Mapping[str, Any] | None = None) -> LoadedStudy:
    """The same from text."""
    return _loaded(read_text(text, name), overrides)


def _with_includes(tree: Tree) -> Tree:
    """The study over the files it includes, for example measured terms; a later file over an earlier one.

    `include: FILE` or a list, paths relative to the study. Included files may not include others.
    """
    given = tree.data.get("include")
    if given is None:
        return tree
    names = given if isinstance(given, list) else [given]
    below: Mapping[str, Any] = {}
    for name in names:
        if not isinstance(name, str):
            raise StudyError(
                tree.name,
                [
                    Problem(
                        "include",
                        f"expected the name of a YAML file, got {name!r}",
                        *(tree.position(("include",)) or ()),
                    )
                ],
            )
        included = read_tree(Path(tree.name).parent / name)
        if "include" in included.data:
            raise StudyError(
                included.name,
                [
                    Problem(
                        "include", "an included file may not include others", *(included.position(("include",)) or ())
                    )
                ],
            )
        below = laid_over(below, included.data)
    own = {key: value for key, value in tree.data.items() if key != "include"}
    return replace(tree, data=laid_over(below, own))


# Sections that may be left out of a file, and still be reached by --set, scenarios and sweeps.
OPTIONAL_SECTIONS = (
    ("policy",),
    ("policy", "admission"),
    ("prices",),
    ("monte_carlo",),
    ("sweep",),
    ("uncertain",),
    ("targets",),
    ("deployment", "decode"),
)


def _with_sections(tree: Tree) -> Tree:
    data = tree.data
    for section in OPTIONAL_SECTIONS:
        data = _with_section(data, section)
    return replace(tree, data=data)


def _with_section(data: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(data, Mapping) or (len(keys) > 1 and keys[0] not in data):
        return data
    inner = data.get(keys[0], {})
    return {**data, keys[0]: _with_section(inner, keys[1:]) if len(keys) > 1 else inner}


def _loaded(tree: Tree, overrides: Mapping[str, Any] | None) -> LoadedStudy:
    tree = _with_sections(_with_includes(tree))
    if overrides:
        tree = apply_overrides(tree, overrides)
    return replace(resolve(tree), overrides=dict(overrides or {}))


def resolve(tree: Tree) -> LoadedStudy:
    """Read a model's config.json, merge presets, and validate; problems of all are reported together."""
    tree = _with_model_config(tree)
    try:
        data, provenance = merge_presets(tree, PRESET_PLACES)
    except UnmergedError as error:
        raise error.with_others(_problems(tree, error.data)) from None
    try:
        record = Study.model_validate(data)
    except ValidationError as error:
        raise StudyError(tree.name, problems_of(error, replace(tree, data=data), Study)) from None
    if problems := list(_target_problems(tree, record.targets)):
        raise StudyError(tree.name, problems)
    return LoadedStudy(tree, data, provenance, record)


def _target_problems(tree: Tree, targets: Mapping[str, str]) -> Iterator[Problem]:
    for quantity, text in targets.items():
        try:
            parse_target(quantity, text, QUANTITIES)
        except ValueError as error:
            yield Problem(f"targets.{quantity}", str(error), *(tree.position(("targets", quantity)) or ()))


def _with_model_config(tree: Tree) -> Tree:
    """`model: {config: PATH, ...}` replaced by the fields of that config.json, the study's own fields over them."""
    model = tree.data.get("model")
    if not isinstance(model, Mapping) or "config" not in model:
        return tree
    path = Path(tree.name).parent / str(model["config"])
    own = {key: value for key, value in model.items() if key != "config"}
    try:
        fields = read_config_file(path).model_dump(by_alias=True, exclude_none=True, mode="json")
    except (KvmodelError, OSError) as error:
        problem = Problem("model.config", str(error), *(tree.position(("model", "config")) or ()))
        raise StudyError(tree.name, [problem]) from None
    return replace(tree, data={**tree.data, "model": {**fields, **own}})


def _problems(tree: Tree, data: Mapping[str, Any]) -> list[Problem]:
    try:
        Study.model_validate(data)
    except ValidationError as error:
        return problems_of(error, replace(tree, data=data), Study)
    return []
