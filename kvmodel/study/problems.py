"""What validation found wrong, as problems a person can mend: path, line, what was given, what is allowed.

Pydantic names a place by the way it took through its unions; here a place is where the user wrote it. A value
that fits no branch of a union is one problem, not one per branch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from kvmodel import units
from kvmodel.errors import Inconsistent, Problem, nearest
from kvmodel.quantity import Quantity, field_meaning
from kvmodel.study.source import PathKey, Tree, dotted

_QUOTED = re.compile(r"'([^']*)'")
_SHAPE = {  # error types that only say "not this shape": the weakest thing to say about a value
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
}
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
}


@dataclass(frozen=True)
class _Finding:
    """One pydantic error at its place in the data; `branches` are the (place, label) of unions passed."""

    error: Mapping[str, Any]
    path: PathKey
    branches: tuple[tuple[PathKey, str], ...]


def problems_of(error: ValidationError, tree: Tree, model: type[BaseModel]) -> list[Problem]:
    """Problems of a failed validation of `tree.data` by `model`, in the order of the file.

    For data merged with presets give the tree with that data, so that places inside presets are known too.
    """
    findings = [_located(entry, tree.data) for entry in error.errors(include_url=False)]
    problems: dict[PathKey, list[str]] = defaultdict(list)
    for finding in _without_misspelt(_one_branch_each(findings)):
        for place, message in _told(finding, model, tree.data):
            if message not in problems[place]:
                problems[place].append(message)
    listed = [_problem(place, "; or ".join(messages), tree) for place, messages in problems.items()]
    return sorted(listed, key=lambda problem: (problem.line or 0, problem.column or 0))


def _told(finding: _Finding, model: type[BaseModel], data: Any) -> Iterator[tuple[PathKey, str]]:
    """Place and message; one for each part of a record that does not go with the others."""
    cause = finding.error.get("ctx", {}).get("error")
    if not isinstance(cause, Inconsistent):
        yield _subject(finding), _message(finding, model, data)
        return
    for problem in cause.problems:
        path, _, message = problem.partition(": ")
        yield (*_subject(finding), *path.split(".")), message


def _problem(path: PathKey, message: str, tree: Tree) -> Problem:
    origin = tree.origin(path)
    if origin and origin[0] == "set":
        return Problem(dotted(path), f"{message} (given by --set)")
    if origin:
        message = f"{message} (given by scenario {origin[1]!r})"
    return Problem(dotted(path), message, *(tree.position(path) or ()))


# --- places ---------------------------------------------------------------------------------------


def _located(error: Mapping[str, Any], data: Any) -> _Finding:
    """The error with the parts of its `loc` that are not in the data taken off.

    Where a branch is named like a key, the reading that ends at the very object complained about is right.
    """
    loc = error["loc"]
    missing = error["type"] == "missing"
    ways = list(_ways(data, loc[:-1] if missing else loc, (), ()))
    _, path, branches = next((way for way in ways if way[0] is error["input"]), ways[0])
    return _Finding(error, (*path, loc[-1]) if missing else path, branches)


def _ways(node: Any, loc: tuple[Any, ...], path: PathKey, branches: tuple[Any, ...]) -> Iterator[tuple]:
    """Every reading of `loc` as keys of the data and branch labels: (node, path, branches), keys first."""
    if not loc:
        yield node, path, branches
        return
    head, rest = loc[0], loc[1:]
    if (isinstance(node, Mapping) and head in node) or (
        isinstance(node, list | tuple) and isinstance(head, int) and head < len(node)
    ):
        yield from _ways(node[head], rest, (*path, head), branches)
    label = () if head == "[key]" else ((path, str(head)),)
    yield from _ways(node, rest, path, (*branches, *label))


def _one_branch_each(findings: list[_Finding]) -> list[_Finding]:
    """Findings of the best branch only, for every union that reported several."""
    taken: dict[PathKey, dict[str, list[_Finding]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        for place, label in finding.branches:
            taken[place][label].append(finding)
    dropped: set[int] = set()
    for place, labels in sorted(taken.items(), key=lambda item: len(item[0])):
        ranks = {label: _branch_rank(place, found) for label, found in labels.items()}
        worse = [label for label, rank in ranks.items() if rank > min(ranks.values())]
        dropped |= {id(finding) for label in worse for finding in labels[label]}
    return [finding for finding in findings if id(finding) not in dropped]


def _branch_rank(place: PathKey, found: list[_Finding]) -> tuple[int, int]:
    """How far a branch is from what was given: few complaints inside it is near, a wrong shape is far."""
    if any(finding.path == place and finding.error["type"] in _SHAPE for finding in found):
        return 2, 0
    here = [finding for finding in found if finding.path == place]
    if here and isinstance(here[0].error["input"], Mapping | list):
        return 1, 0  # a branch for single values, a mapping or list given
    return 0, len(found) if not here else 0


def _without_misspelt(findings: list[_Finding]) -> list[_Finding]:
    """Findings without "missing" where an unknown key beside it is that name misspelt: one thing to mend."""
    unknown = [finding.path for finding in findings if finding.error["type"] == "extra_forbidden"]

    def misspelt(path: PathKey) -> bool:
        return any(key[:-1] == path[:-1] and nearest(str(key[-1]), [str(path[-1])]) for key in unknown)

    return [finding for finding in findings if finding.error["type"] != "missing" or not misspelt(finding.path)]


def _subject(finding: _Finding) -> PathKey:
    """Path the problem is about: for an unknown or absent kind, its key."""
    if finding.error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        key = finding.error["ctx"]["discriminator"].strip("'")
        if key.isidentifier():
            return (*finding.path, key)
    return finding.path


# --- messages -------------------------------------------------------------------------------------


def _message(finding: _Finding, model: type[BaseModel], data: Any) -> str:
    error, path = finding.error, finding.path
    kind, given = error["type"], _shown(error["input"])
    labels = {label for _, label in finding.branches}
    if kind in ("value_error", "assertion_error"):
        message = str(error["ctx"]["error"])
        return f"{message}, got {given}" if message.startswith("expected ") else message
    if kind == "extra_forbidden":
        return _unknown_key(str(path[-1]), _fields(_records(model, path[:-1], data, labels)))
    if kind == "missing":
        return _missing(str(path[-1]), _records(model, path[:-1], data, labels))
    if kind == "union_tag_invalid":
        return _not_one_of(error["ctx"]["tag"], _QUOTED.findall(error["ctx"]["expected_tags"]))
    if kind == "union_tag_not_found":
        kinds = _kinds(_records(model, path, data, set()), error["ctx"]["discriminator"].strip("'"))
        return "is missing" + (f"; one of {', '.join(kinds)}" if kinds else "")
    if kind in ("literal_error", "enum"):
        expected = error["ctx"]["expected"]
        return _not_one_of(error["input"], _QUOTED.findall(expected) or [expected])
    if kind == "string_type":
        quoted = isinstance(error["input"], int | float)
        return f"expected text, got {given}" + ("; put it in quotes" if quoted else "")
    if shape := _SHAPE.get(kind) or _EXPECTED.get(kind):
        return f"expected {shape}, got {given}"
    plain = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{plain[:1].lower()}{plain[1:]}, got {given}"


def _not_one_of(given: Any, allowed: list[str]) -> str:
    return f"{_shown(given)} is not one of {', '.join(allowed)}{nearest(str(given), allowed)}"


def _unknown_key(key: str, known: Iterable[str]) -> str:
    names = list(known)
    hint = nearest(key, names) or (f"; there are {', '.join(names)}" if names else "")
    return f"unknown key {key!r}{hint}"


def _missing(name: str, records: list[type[BaseModel]]) -> str:
    """'is missing', with what the field means and an example where its declaration has one."""
    for record in records:
        for key, field in record.model_fields.items():
            if name not in (key, field.alias):
                continue
            quantity = next((item for item in _metadata(field) if isinstance(item, Quantity)), None)
            said = field_meaning(record, key)
            meaning = f": {said.rstrip('.')}" if said else ""
            if quantity is None:
                return f"is missing{meaning}"
            expected, example = units.DIMENSIONS[quantity.dimension]
            return f"is missing{meaning}; expected {expected}, for example {example!r}"
    return "is missing"


def _metadata(field: Any) -> Iterator[Any]:
    yield from field.metadata
    for member in _members(field.annotation):
        yield from get_args(member)[1:] if get_origin(member) is Annotated else ()


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, list(value)[:4]))})" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


# --- the records at a place -----------------------------------------------------------------------


def _records(model: type[BaseModel], path: PathKey, data: Any, labels: set[str]) -> list[type[BaseModel]]:
    """Record types that may stand at `path`: as declared, narrowed by the kind given or the branch taken."""
    declared: list[Any] = [model]
    for key in path:
        declared = [inner for outer in declared for inner in _inner(outer, key)]
        data = _child(data, key)
        declared = _narrowed([member for entry in declared for member in _members(entry)], data, labels)
    return [record for record in map(_bare, declared) if _is_record(record)]


def _inner(annotation: Any, key: Any) -> list[Any]:
    """Declared types of entry `key` of something of this type."""
    annotation = _bare(annotation)
    if _is_record(annotation):
        return [field.annotation for name, field in annotation.model_fields.items() if key in (name, field.alias)]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or not arguments:
        return []
    if issubclass(origin, Mapping):
        return [arguments[1]]
    if issubclass(origin, tuple) and isinstance(key, int) and arguments[-1] is not Ellipsis:
        return [arguments[key]] if key < len(arguments) else []
    return [arguments[0]] if isinstance(key, int) else []


def _members(annotation: Any) -> list[Any]:
    """Members of a union, however it is written; anything else is its own only member."""
    bare = _bare(annotation)
    if get_origin(bare) in (Union, UnionType):
        return [member for argument in get_args(bare) for member in _members(argument)]
    return [annotation]


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated or hasattr(annotation, "__value__"):
        annotation = getattr(annotation, "__value__", None) or get_args(annotation)[0]
    return annotation


def _narrowed(members: list[Any], data: Any, labels: set[str]) -> list[Any]:
    """Members whose fixed fields (kind: Literal) agree with the data, or else of the branch taken, or all."""
    records = [member for member in members if _is_record(_bare(member))]
    fixed = [member for member in records if isinstance(data, Mapping) and _agrees(_bare(member), data)]
    taken = [
        member for member in members if _tag(member) in labels or getattr(_bare(member), "__name__", None) in labels
    ]
    return fixed or taken or members


def _agrees(record: type[BaseModel], data: Mapping[str, Any]) -> bool:
    """Whether the data names this record: it says what the record's one-valued fields (its kind) say."""
    fixed = {
        name: get_args(field.annotation)
        for name, field in record.model_fields.items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }
    said = [data[name] in values for name, values in fixed.items() if name in data]
    return bool(said) and all(said)


def _tag(annotation: Any) -> str | None:
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((item.tag for item in metadata if isinstance(item, Tag)), None)


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _child(data: Any, key: Any) -> Any:
    try:
        return data[key]
    except (KeyError, IndexError, TypeError):
        return None


def _fields(records: list[type[BaseModel]]) -> list[str]:
    """What a user may write in these records, each name once."""
    return list(dict.fromkeys(field.alias or name for record in records for name, field in record.model_fields.items()))


def _kinds(records: list[type[BaseModel]], key: str) -> list[str]:
    """Values that `key` may take to choose among these records."""
    fields = [record.model_fields[key] for record in records if key in record.model_fields]
    return [str(value) for field in fields for value in get_args(field.annotation)]
