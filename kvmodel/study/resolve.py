"""From the tree a user wrote to the tree that is evaluated: scenarios, overrides, presets, in this order.

Everything here is a pure function of trees. A path is written with dots, list entries by number:
tiers.dram.capacity, compare.0. A key that itself holds dots (the paths under sweep, uncertain and targets) is
found as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvmodel.errors import KvmodelError, PresetError, Problem, StudyError, nearest
from kvmodel.presets import catalogue
from kvmodel.study.source import PathKey, Tree, dotted, read_value

FALLBACK = {"tiers": ("tiers", "drives")}  # a tier is named by its own preset or by the drive in it
DOTTED_KEYS = ("sweep", "uncertain", "targets")  # their keys are paths, so a new key may hold dots


class UnknownPathError(KvmodelError):
    """A dotted path that leads nowhere."""


class UnmergedError(StudyError):
    """Presets that could not be merged; `data` has the others merged, to find what else is wrong."""

    def __init__(self, source: str, problems: Sequence[Problem], data: dict[str, Any]):
        super().__init__(source, problems)
        self.data = data

    def with_others(self, others: Iterable[Problem]) -> StudyError:
        """All problems together, without those about records that lack their preset's fields."""
        places = tuple(problem.path.removesuffix("preset") for problem in self.problems)
        beside = [problem for problem in others if not f"{problem.path}.".startswith(places)]
        together = sorted([*self.problems, *beside], key=lambda problem: problem.line or 0)
        return StudyError(self.source, together)


@dataclass(frozen=True)
class Provenance:
    """Where one value of the resolved study comes from.

    `origin` is study, preset, set, scenario or default; `name` is that of the preset or scenario.
    """

    origin: str
    name: str | None = None
    line: int | None = None
    basis: str | None = None
    source: str | None = None
    date: str | None = None
    url: str | None = None
    note: str | None = None


# --- paths ----------------------------------------------------------------------------------------


def locate(data: Any, path: str, create: bool = False) -> PathKey:
    """Keys that `path` leads through. With `create`, its last key may be new inside an existing mapping.

    Raises UnknownPathError with the nearest existing key.
    """
    parts = path.split(".")
    keys: PathKey = ()
    node, in_preset = data, False
    while parts:
        in_preset = in_preset or (isinstance(node, Mapping) and "preset" in node)
        key, used = _step(node, parts)
        if key is None:
            if create and (new := _new_keys(keys, node, parts, in_preset)):
                return (*keys, *new)
            raise UnknownPathError(_lost(path, keys, node, parts))
        keys, node, parts = (*keys, key), node[key], parts[used:]
    return keys


def get_path(data: Any, path: str) -> Any:
    """Value at a dotted path. Raises UnknownPathError."""
    node = data
    for key in locate(data, path):
        node = node[key]
    return node


def with_path(data: Any, path: str, value: Any) -> Any:
    """Copy of `data` with `value` (anything, also an array) at a path; what is not on the way is shared."""
    return _with_keys(data, locate(data, path, create=True), value)


def _with_keys(node: Any, keys: PathKey, value: Any) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(node, list):
        return [_with_keys(item, rest, value) if i == key else item for i, item in enumerate(node)]
    return {**node, key: _with_keys(node.get(key, {}), rest, value)}


def _step(node: Any, parts: Sequence[str]) -> tuple[Any, int]:
    """Next key of `node` along the parts and how many parts it spells; (None, 0) where there is none."""
    if isinstance(node, Mapping):
        for used in range(1, len(parts) + 1):
            if (key := ".".join(parts[:used])) in node:
                return key, used
    elif isinstance(node, list) and parts[0].isdecimal() and int(parts[0]) < len(node):
        return int(parts[0]), 1
    return None, 0


def _new_keys(keys: PathKey, node: Any, parts: Sequence[str], in_preset: bool) -> PathKey:
    """Keys to create below `node`, () where that is not allowed."""
    if not isinstance(node, Mapping) or not all(parts):
        return ()
    if len(keys) == 1 and keys[0] in DOTTED_KEYS:
        return (".".join(parts),)
    return tuple(parts) if len(parts) == 1 or in_preset else ()  # a preset may hold the levels between


def _lost(path: str, keys: PathKey, node: Any, parts: Sequence[str]) -> str:
    place = f"in {dotted(keys)!r}" if keys else "at the top of the study"
    if isinstance(node, Mapping):
        return f"{path!r} leads nowhere: there is no {parts[0]!r} {place}{_nearest_or_all(parts[0], node)}"
    if isinstance(node, list):
        return f"{path!r} leads nowhere: {place} there are entries 0 to {len(node) - 1}, not {parts[0]!r}"
    return f"{path!r} leads nowhere: {dotted(keys)!r} is a value, it has no {parts[0]!r}"


def _nearest_or_all(word: str, known: Iterable[str]) -> str:
    names = list(map(str, known))
    return nearest(word, names) or (f"; there is {', '.join(names)}" if names else "; there is nothing")


# --- overrides and scenarios ----------------------------------------------------------------------


def parse_assignment(text: str) -> tuple[str, str]:
    """The path and the value text of 'path=value'. Raises KvmodelError."""
    path, sign, value = text.partition("=")
    if not sign or not path.strip():
        raise KvmodelError(f"{text!r} is not of the form path=value, for example tiers.dram.capacity='1 TiB'")
    return path.strip(), value.strip()


def apply_overrides(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """Tree with each dotted path set; text is read as YAML reads it. All bad paths are reported together."""
    problems = []
    for path, value in values.items():
        try:
            given = read_value(value) if isinstance(value, str) else value
            tree = _assign(tree, path, given, ("set", path))
        except StudyError as error:
            problems += [Problem(path, problem.message) for problem in error.problems]
        except (KvmodelError, ValueError) as error:
            problems.append(Problem(path, str(error)))
    if problems:
        raise StudyError("--set", problems)
    return tree


def apply_scenarios(tree: Tree, names: Iterable[str]) -> Tree:
    """Tree with the named scenarios laid over it, in order; each one after those it extends."""
    known = tree.data.get("scenarios") or {}
    if not isinstance(known, Mapping):
        raise _problem(tree, ("scenarios",), "expected a mapping of scenario names")
    problems: list[Problem] = []
    for name in _in_order(tree, known, names):
        if not isinstance(known[name], Mapping):
            raise _problem(tree, ("scenarios", name), "expected a mapping of paths to values")
        for path, value in known[name].items():
            if path == "extends":
                continue
            place = ("scenarios", name, path)
            try:
                tree = _assign(tree, path, value, ("scenario", name), place)
            except UnknownPathError as error:
                problems.append(Problem(dotted(place), str(error), *(tree.position(place) or ())))
    if problems:
        raise StudyError(tree.name, problems)
    return tree


def _in_order(tree: Tree, known: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Scenario names with those they extend before them, each once."""
    order: list[str] = []

    def visit(name: Any, line_of: PathKey, above: tuple[str, ...]) -> None:
        if name not in known:
            hint = _nearest_or_all(str(name), known)
            raise _problem(tree, line_of, f"unknown scenario {name!r}{hint}")
        if name in above:
            raise _problem(tree, line_of, f"scenarios extend each other: {' -> '.join((*above, name))}")
        if name in order:
            return
        bases = known[name].get("extends", []) if isinstance(known[name], Mapping) else []
        for base in [bases] if isinstance(bases, str) else bases or []:
            visit(base, ("scenarios", name, "extends"), (*above, name))
        order.append(name)

    for name in names:
        visit(name, ("scenarios",), ())
    return order


def _assign(tree: Tree, path: str, value: Any, origin: tuple[str, str], place: PathKey | None = None) -> Tree:
    """Tree with one path replaced; its positions become those of `place`, where the new value stands."""
    keys = locate(tree.data, path, create=True)
    size = len(keys)
    positions = {at: mark for at, mark in tree.positions.items() if at[:size] != keys}
    origins = {at: name for at, name in tree.origins.items() if at[:size] != keys}
    if place is not None:
        positions |= {
            (*keys, *at[len(place) :]): mark for at, mark in tree.positions.items() if at[: len(place)] == place
        }
    return Tree(tree.name, _with_keys(tree.data, keys, value), positions, {**origins, keys: origin})


# --- presets --------------------------------------------------------------------------------------


def merge_presets(tree: Tree, places: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Provenance]]:
    """Data with each preset's fields below the user's own, and where every value comes from.

    `places` maps a path pattern ("model", "deployment.gpu", "tiers.*") to a catalogue family. The `preset`
    key then reads "NAME" or "NAME (modified: field, field)". Raises UnmergedError.
    """
    data, problems = tree.data, []
    provenance = {dotted(path): _given(tree, path) for path, _ in _leaves(data, ())}
    for pattern, family in places.items():
        for keys, record in _matches(data, pattern.split("."), ()):
            if not isinstance(record, Mapping) or record.get("preset") is None:
                continue
            place = (*keys, "preset")
            try:
                preset = _find(family, record["preset"])
                merged = _merged(preset, record)
            except PresetError as error:
                problems.append(Problem(dotted(place), str(error), *(tree.position(place) or ())))
                continue
            data = _with_keys(data, keys, merged)
            for path, _ in _leaves(preset.fields, ()):
                provenance.setdefault(dotted((*keys, *path)), _certified(preset, path))
    if problems:
        raise UnmergedError(tree.name, problems, data)
    return data, _only_present(provenance, data)


def _find(family: str, name: Any) -> catalogue.Preset:
    """The preset of this name in the family, or in the families it falls back to."""
    if not isinstance(name, str):
        raise PresetError(f"a preset is named by text, got {name!r}")
    families = FALLBACK.get(family, (family,))
    for candidate in families:
        if name in catalogue.names(candidate):
            return catalogue.load(candidate, name)
    known = [known for candidate in families for known in catalogue.names(candidate)]
    where = " or ".join(families)
    lists = " and ".join(f"'kvmodel presets list {candidate}'" for candidate in families)
    raise PresetError(f"no preset {name!r} in {where}{nearest(name, known)}; see {lists}")


def _merged(preset: catalogue.Preset, record: Mapping[str, Any]) -> dict[str, Any]:
    kind = preset.fields.get("kind")
    if kind is not None and record.get("kind", kind) != kind:
        raise PresetError(f"preset {preset.name!r} is of kind {kind!r}, but kind says {record['kind']!r}")
    own = {key: value for key, value in record.items() if key != "preset"}
    modified = [dotted(path) for path in _modified(preset.fields, own, ())]
    name = f"{preset.name} (modified: {', '.join(modified)})" if modified else preset.name
    return {**laid_over(preset.fields, own), "preset": name}


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, mapping by mapping; a mapping of another kind replaces the one below whole."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if _mergeable(below[key], above[key]):
            merged[key] = laid_over(below[key], above[key])
    return merged


def _mergeable(below: Any, above: Any) -> bool:
    both = isinstance(below, Mapping) and isinstance(above, Mapping)
    return both and above.get("kind", below.get("kind")) == below.get("kind")


def _modified(below: Mapping[str, Any], above: Mapping[str, Any], path: PathKey) -> Iterator[PathKey]:
    """Paths of preset fields that the user gave another value."""
    for key, value in above.items():
        if key not in below:
            continue
        if _mergeable(below[key], value):
            yield from _modified(below[key], value, (*path, key))
        elif not _same(below[key], value):
            yield (*path, key)


def _same(one: Any, other: Any) -> bool:
    return (one == other) is True  # an array compares element by element: never the preset's own value


def _matches(node: Any, pattern: Sequence[str], keys: PathKey) -> Iterator[tuple[PathKey, Any]]:
    """Every (keys, value) the pattern leads to; '*' stands for each entry of a mapping or list."""
    if not pattern:
        yield keys, node
        return
    entries = dict(enumerate(node)) if isinstance(node, list) else node if isinstance(node, Mapping) else {}
    for key, value in list(entries.items()):
        if pattern[0] in ("*", str(key)):
            yield from _matches(value, pattern[1:], (*keys, key))


def _leaves(node: Any, path: PathKey) -> Iterator[tuple[PathKey, Any]]:
    """Every value that is not a mapping; a list is one value unless it holds mappings."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(node, list) and any(isinstance(item, Mapping) for item in node):
        for i, item in enumerate(node):
            yield from _leaves(item, (*path, i))
    else:
        yield path, node


def _given(tree: Tree, path: PathKey) -> Provenance:
    origin, name = tree.origin(path) or ("study", None)
    line = None if origin == "set" else (tree.position(path) or (None,))[0]
    return Provenance(origin, name, line)


def _certified(preset: catalogue.Preset, path: PathKey) -> Provenance:
    around = (dotted(path[:size]) for size in range(len(path), 0, -1))
    found = next((preset.provenance[place] for place in around if place in preset.provenance), None)
    if found is None:
        return Provenance("preset", preset.name)
    return Provenance(
        "preset",
        preset.name,
        basis=found.basis,
        source=found.source_title or None,
        date=found.date or None,
        url=found.url or None,
        note=found.note or None,
    )


def _only_present(provenance: Mapping[str, Provenance], data: Any) -> dict[str, Provenance]:
    """Provenance of what survived the merge: a field replaced whole takes the preset's parts with it."""
    present = {dotted(path) for path, _ in _leaves(data, ())}
    return {path: where for path, where in provenance.items() if path in present}


def _problem(tree: Tree, path: PathKey, message: str) -> StudyError:
    return StudyError(tree.name, [Problem(dotted(path), message, *(tree.position(path) or ()))])
