"""A study file as a plain tree that remembers on which line everything stands.

YAML is read with the surprises taken out: only `true` and `false` are booleans (NO, yes, on stay text),
numbers are decimal and may carry an exponent (1e3), there is no base 60, octal, hexadecimal or date (1:30 and
2026-01-02 stay text), a repeated key is an error, aliases may not expand without end, and tags are refused.
`<<` merges are kept. Keys are always text.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kvmodel.errors import Problem, StudyError, nearest

MAX_BYTES = 10_000_000
MAX_VALUES = 200_000
MAX_DEPTH = 60
_TOO_LARGE = f"a study file has at most {MAX_BYTES // 10**6} MB"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled one is missing in a browser

_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INFINITE = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")

PathKey = tuple[Any, ...]


@dataclass(frozen=True)
class Tree:
    """Data of one input; `positions` maps a path to its (line, column), counted from 1.

    `origins` names what did not come from the file's own place: path -> ("set" | "scenario", name).
    """

    name: str
    data: dict[str, Any]
    positions: Mapping[PathKey, tuple[int, int]]
    origins: Mapping[PathKey, tuple[str, str]] = field(default_factory=dict)

    def position(self, path: PathKey) -> tuple[int, int] | None:
        """Position of the path, or of the nearest thing around it that has one."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)

    def origin(self, path: PathKey) -> tuple[str, str] | None:
        """What replaced this path or something around it, if anything did."""
        while path and path not in self.origins:
            path = path[:-1]
        return self.origins.get(path)


def read_tree(source: Path | str) -> Tree:
    """Tree of a file (a path) or of YAML text (a str with a line break in it)."""
    if isinstance(source, str) and "\n" in source:
        return read_text(source, "study")
    return read_text(_file_text(Path(source)), str(source))


def read_text(text: str, name: str) -> Tree:
    """Tree of YAML text; `name` stands in messages. Raises StudyError with every problem found."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _error(name, "holds characters that are not valid Unicode") from None
    problems: list[Problem] = []
    try:
        _survey(text, name, problems)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise StudyError(name, [*problems, _syntax_problem(error, text)]) from None
    if node is None or (isinstance(node, yaml.ScalarNode) and _is_plain(node) and not node.value):
        raise _error(name, "is empty; a study needs at least a model, tiers and a workload")
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "one value"
        raise _error(name, f"expected 'key: value' entries at the top, found {found}", _mark(node))
    builder = _Builder(name, problems)
    data = builder.build(node, (), 0)
    if problems:
        raise StudyError(name, sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    return Tree(name, data, builder.positions)


def read_scalar(text: str) -> Any:
    """Meaning of a plain (unquoted) value: None, bool, int, float or text. ValueError when not finite."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if infinite := _INFINITE.fullmatch(text):
        return -math.inf if infinite[1] == "-" else math.inf
    if text in (".nan", ".NaN", ".NAN"):
        raise ValueError("'not a number' cannot be used; leave the key out instead")
    integer = _INTEGER.fullmatch(text)
    if not integer and not _FLOAT.fullmatch(text):
        return text
    if not math.isfinite(number := float(text)):
        shown = text if len(text) <= 24 else text[:20] + "..."
        raise ValueError(f"{shown} is too large for a number; quote an identifier, write .inf for unlimited")
    return int(text) if integer else number


def read_value(text: str) -> Any:
    """Value typed on a command line: a list, mapping or quoted text is YAML, all else one plain value."""
    text = text.strip()
    if text[:1] in ("[", "{", "'", '"'):
        return read_text(f"value: {text}\n", "value").data["value"]
    return read_scalar(text)


def _file_text(path: Path) -> str:
    name = str(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            inside = "; did you mean the study.yaml inside it?" if (path / "study.yaml").is_file() else ""
            raise _error(name, f"is a directory, not a study file{inside}")
        if status.st_size > MAX_BYTES:
            raise _error(name, f"is {status.st_size / 1e6:.0f} MB; {_TOO_LARGE}")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _error(name, f"there is no such file{_similar_file(path)}") from None
    except (OSError, ValueError) as error:
        raise _error(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAX_BYTES:
        raise _error(name, _TOO_LARGE)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _error(name, "is UTF-16 text; save it as UTF-8")
    if b"\0" in content:
        raise _error(name, "is a binary file, not YAML text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _error(name, f"is not UTF-8 text (byte 0x{error.object[error.start]:02x})", (line, 1)) from None


def _similar_file(path: Path) -> str:
    try:
        return nearest(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""


def _survey(text: str, name: str, problems: list[Problem]) -> None:
    """Refuses what must not be composed (too many values, too deep) and notes tags; builds nothing."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent):
            values += 1
            if tag := getattr(event, "tag", None):
                shown = tag.replace("tag:yaml.org,2002:", "!!")
                message = f"tag {shown!r} is not read; write a plain value, or text in quotes"
                problems.append(Problem("", message, *_mark(event)))
        if values > MAX_VALUES:
            raise _error(name, f"holds more than {MAX_VALUES:,} values", _mark(event))
        if depth > MAX_DEPTH:
            raise _error(name, f"is nested more than {MAX_DEPTH} levels deep", _mark(event))


class _Builder:
    """Plain data from composed nodes; collects problems and positions on the way."""

    def __init__(self, name: str, problems: list[Problem]):
        self.name = name
        self.problems = problems
        self.positions: dict[PathKey, tuple[int, int]] = {}
        self._built = 0
        self._open: set[int] = set()
        self._reported: set[tuple[int, int, str]] = set()

    def build(self, node: yaml.Node, path: PathKey, depth: int, mark: tuple[int, int] | None = None) -> Any:
        self._built += 1
        if self._built > MAX_VALUES:
            raise _error(self.name, f"aliases expand it to more than {MAX_VALUES:,} values", _mark(node))
        if depth > MAX_DEPTH:
            raise _error(self.name, f"aliases nest it more than {MAX_DEPTH} levels deep", _mark(node))
        if id(node) in self._open:
            raise StudyError(self.name, [Problem(dotted(path), "an alias contains itself", *_mark(node))])
        self._open.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            built = self._scalar(node, path)
        elif isinstance(node, yaml.SequenceNode):
            built = [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        else:
            built = self._mapping(node, path, depth)
        self._open.remove(id(node))
        self.positions[path] = mark or _mark(node)
        return built

    def _scalar(self, node: yaml.ScalarNode, path: PathKey) -> Any:
        if not _is_plain(node):
            return node.value
        try:
            return read_scalar(node.value)
        except ValueError as error:
            self._note(node, path, str(error))
            return None

    def _mapping(self, node: yaml.MappingNode, path: PathKey, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        entries, merged = self._entries(node, path)
        for source in reversed(merged):  # the first of several wins, and the mapping's own keys win over all
            if isinstance(source, yaml.MappingNode):
                data |= self.build(source, path, depth + 1)
            else:
                self._note(source, path, "'<<' merges a mapping or a list of mappings")
        for key, value in entries:
            data[key.value] = self.build(value, (*path, key.value), depth + 1, _mark(key))
        return data

    def _entries(self, node: yaml.MappingNode, path: PathKey) -> tuple[list[Any], list[yaml.Node]]:
        """The mapping's own (key, value) nodes, each key once, and what '<<' brings in."""
        first: dict[tuple[str, bool], yaml.Node] = {}
        entries: list[Any] = []
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, path, "a key must be one word or text, not a list or mapping")
                continue
            merge = key.value == "<<" and _is_plain(key)
            if (key.value, merge) in first:
                line = _mark(first[key.value, merge])[0]
                self._note(key, (*path, key.value), f"duplicate key {key.value!r} (first at line {line})")
                continue
            first[key.value, merge] = key
            if not merge:
                entries.append((key, value))
            else:
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
        return entries, merged

    def _note(self, node: yaml.Node, path: PathKey, message: str) -> None:
        if (*_mark(node), message) not in self._reported:  # an alias shows the same place again
            self._reported.add((*_mark(node), message))
            self.problems.append(Problem(dotted(path), message, *_mark(node)))


def dotted(path: Iterable[Any]) -> str:
    """The path as a user writes it: tiers.dram.capacity, workload.agents.0."""
    return ".".join(map(str, path))


def _is_plain(node: yaml.ScalarNode) -> bool:
    return node.style in (None, "")


def _mark(thing: Any) -> tuple[int, int]:
    mark = thing.start_mark
    return mark.line + 1, mark.column + 1


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Problem("", f"not valid YAML: {getattr(error, 'reason', error)}")
    parts = [part for part in (error.problem, error.context) if part]
    message = ", ".join(parts if not parts[0].startswith("but ") else [" ".join(reversed(parts))])
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    hint = "; indent with spaces, not tabs" if "\t" in line[: mark.column + 1] else ""
    return Problem("", f"not valid YAML: {message}{hint}", mark.line + 1, mark.column + 1)


def _error(name: str, message: str, place: tuple[int, int] | None = None) -> StudyError:
    return StudyError(name, [Problem("", message, *(place or ()))])
