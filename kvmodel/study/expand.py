"""From a resolved study to cases: choices become cases, numbers become axes.

Every swept path has an axis of its own, in file order; all uncertain numbers share the last axis, "draw". Arrays are
put into the tree at their paths and the record is validated again, so bounds hold for every point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from kvmodel.errors import Problem, StudyError
from kvmodel.quantity import Values
from kvmodel.results.table import Axis
from kvmodel.study.load import LoadedStudy, resolve
from kvmodel.study.problems import problems_of
from kvmodel.study.resolve import UnknownPathError, apply_overrides, locate, with_path
from kvmodel.study.sampling import drawn
from kvmodel.study.source import dotted
from kvmodel.system.case import Case

SPACES = {"linspace": np.linspace, "geomspace": np.geomspace}


@dataclass(frozen=True)
class Expansion:
    """The cases of a study and the axes they share."""

    cases: Mapping[str, Mapping[str, Any]]
    """Case name to the plain tree of that case, without arrays."""
    arrays: Mapping[str, tuple[int, np.ndarray]]
    """Dotted path to (axis, values along it)."""
    axes: tuple[Axis, ...]

    def case(self, name: str, window: Mapping[int, slice]) -> Case:
        """One case as a record, its arrays cut to a window of the axes."""
        data = self.cases[name]
        for path, (axis, values) in self.arrays.items():
            shape = [1] * len(self.axes)
            shape[axis] = -1
            data = with_path(data, path, values[window.get(axis, slice(None))].reshape(shape))
        return Case.model_validate(data)


def expand(study: LoadedStudy, seed: int | None = None, draws: int | None = None) -> Expansion:
    """Cases, swept axes and draws of a study. Problems of all paths are reported together."""
    problems: list[Problem] = []
    choices: dict[str, list[Any]] = {}
    arrays: dict[str, tuple[int, np.ndarray]] = {}
    axes: list[Axis] = []
    for path, spec in study.record.sweep.items():
        try:
            values = _swept(study, path, spec)
        except _BadPath as error:
            problems += error.problems
            continue
        if values is None:
            choices[path] = spec
        else:
            arrays[path] = (len(axes), values.numbers)
            axes.append(Axis(path, values.numbers, values.dimension))
    uncertain = study.record.uncertain
    if uncertain and draws != 0:
        count = draws or study.record.monte_carlo.draws
        chosen = study.record.monte_carlo.seed if seed is None else seed
        for path, spec in uncertain.items():
            try:
                arrays[path] = (len(axes), drawn(path, _law_numbers(study, path, spec), chosen, count))
            except _BadPath as error:
                problems += error.problems
            except ValidationError as error:
                problems += [
                    _problem(study, ("uncertain", path), e["msg"].removeprefix("Value error, ")) for e in error.errors()
                ]
        axes.append(Axis("draw", np.arange(count)))
    if problems:
        raise StudyError(study.source.name, problems)
    expansion = Expansion(dict(_cases(study, choices)), arrays, tuple(axes))
    for name in expansion.cases:
        _checked(study, lambda name=name: expansion.case(name, {}))
    return expansion


class _BadPath(Exception):
    def __init__(self, problems: list[Problem]):
        self.problems = problems


def _cases(study: LoadedStudy, choices: Mapping[str, list[Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every combination of named choices; each is resolved anew, since a preset may change with it."""
    if not choices:
        yield study.scenario, study.case_data
        return
    for combination in itertools.product(*choices.values()):
        chosen = dict(zip(choices, combination, strict=True))
        label = ", ".join(f"{path.rsplit('.', 1)[-1]}={value}" for path, value in chosen.items())
        name = label if study.scenario == "base" else f"{study.scenario}: {label}"
        yield name, resolve(apply_overrides(study.source, chosen)).case_data


def _swept(study: LoadedStudy, path: str, spec: Any) -> Values | None:
    """Values of a numeric sweep in base units, or None where the values are names."""
    place = ("sweep", path)
    if isinstance(spec, Mapping) and len(spec) == 1 and next(iter(spec)) in SPACES:
        ((kind, ends),) = spec.items()
        if not (isinstance(ends, list) and len(ends) == 3 and isinstance(ends[2], int) and 2 <= ends[2] <= 10_000):
            raise _BadPath([_problem(study, place, f"{kind} needs [from, to, count] with a count of 2 to 10000")])
        between = _values(study, path, ends[:2], place)
        if kind == "geomspace" and np.any(between.numbers <= 0):
            raise _BadPath([_problem(study, place, "geomspace needs ends above 0")])
        between.numbers = SPACES[kind](*between.numbers, ends[2])
        return between
    if not isinstance(spec, list) or not spec:
        raise _BadPath(
            [
                _problem(
                    study,
                    place,
                    "needs a list of values, {linspace: [from, to, count]} or {geomspace: [from, to, count]}",
                )
            ]
        )
    if all(
        isinstance(value, bool) or (isinstance(value, str) and not value.lstrip("+-.$ ")[:1].isdigit())
        for value in spec
    ):
        _require_path(study, path, place)
        return None
    return _values(study, path, spec, place)


def _law_numbers(study: LoadedStudy, path: str, spec: Any) -> Any:
    """A law with its texts turned into numbers in the base unit of the place it is for."""
    place = ("uncertain", path)
    texts: list[str] = []

    def collect(node: Any) -> None:
        for value in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
            if isinstance(value, str):
                texts.append(value)
            collect(value)

    collect(spec)
    numbers = iter(_values(study, path, texts, place).numbers if texts else _require_path(study, path, place))

    def filled(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: filled(value) for key, value in node.items()}
        if isinstance(node, list):
            return [filled(value) for value in node]
        return float(next(numbers)) if isinstance(node, str) else node

    return filled(spec)


def _require_path(study: LoadedStudy, path: str, place: tuple[str, ...]) -> tuple[()]:
    try:
        locate(study.case_data, path, create=True)
    except UnknownPathError as error:
        raise _BadPath([_problem(study, place, str(error))]) from None
    return ()


def _values(study: LoadedStudy, path: str, texts: list[Any], place: tuple[str, ...]) -> Values:
    """Values given as text or numbers, read in the base unit of the path they are for."""
    _require_path(study, path, place)
    marker = Values(texts)
    data = with_path(study.case_data, path, marker)
    try:
        Case.model_validate(data)
    except ValidationError as error:
        if marker.numbers is None:
            found = problems_of(error, replace(study.source, data=data), Case)
            raise _BadPath([_problem(study, place, problem.message) for problem in found]) from None
    if marker.numbers is None:
        raise _BadPath([_problem(study, place, "is not a number that can be swept or drawn")])
    return marker


def _checked(study: LoadedStudy, build: Any) -> None:
    try:
        build()
    except ValidationError as error:
        tree = replace(study.source, data=study.case_data)
        raise StudyError(study.source.name, problems_of(error, tree, Case)) from None


def _problem(study: LoadedStudy, place: tuple[str, ...], message: str) -> Problem:
    return Problem(dotted(place), message, *(study.source.position(place) or ()))
