"""The catalogue of presets: data files, one per product, each number with its birth certificate.

`kvmodel/presets/<family>/<name>.yaml` holds `title`, `sources`, optional `notes`, and the fields of the
record it presets. A number is written {value, basis, source, note}: what, how known, where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from kvmodel.errors import PresetError, nearest

FAMILIES = ("llms", "gpus", "drives", "tiers", "paths", "prices")
BASES = ("datasheet", "published", "measured", "derived", "assumed")

_CERTIFICATE = {"value", "basis", "source", "note"}
_SOURCED = {"datasheet", "published", "measured"}
_HEADER = {"title", "sources", "notes"}


@dataclass(frozen=True)
class Provenance:
    """Where one number of a preset comes from."""

    value: Any
    basis: str
    source_title: str = ""
    date: str = ""
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class Preset:
    """One preset: plain field values, and beside them the provenance of each by its dotted path."""

    name: str
    family: str
    title: str
    fields: Mapping[str, Any]
    provenance: Mapping[str, Provenance]
    sources: Mapping[str, Mapping[str, str]]
    notes: str = ""


@lru_cache
def names(family: str) -> tuple[str, ...]:
    """Names of all presets of a family, sorted."""
    if family not in FAMILIES:
        hint = nearest(family, FAMILIES) or f"; there are {', '.join(FAMILIES)}"
        raise PresetError(f"unknown preset family {family!r}{hint}")
    folder = files("kvmodel.presets") / family
    if not folder.is_dir():
        return ()
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache
def load(family: str, name: str) -> Preset:
    """The preset of this name. Its mappings are shared: copy before changing."""
    known = names(family)
    if name not in known:
        raise PresetError(
            f"no preset {name!r} in {family}{nearest(name, known)}; "
            f"'kvmodel presets list {family}' shows all {len(known)}"
        )
    text = (files("kvmodel.presets") / family / f"{name}.yaml").read_text(encoding="utf-8")
    return parse(text, family, name)


def parse(text: str, family: str, name: str) -> Preset:
    """Preset from the text of its file. Raises PresetError that names the file and the field."""
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise PresetError(f"preset {family}/{name}: not valid YAML: {error}") from None
    return preset_of(data, family, name)


def preset_of(data: Any, family: str, name: str) -> Preset:
    """Preset from the data of its file, certificates taken off and noted by path."""
    where = f"preset {family}/{name}"
    if not isinstance(data, dict) or not isinstance(data.get("title"), str):
        raise PresetError(f"{where}: a preset is a mapping with a 'title'")
    sources = {
        key: {item: _text(entry) for item, entry in source.items()}
        for key, source in (data.get("sources") or {}).items()
    }
    provenance: dict[str, Provenance] = {}
    fields = {
        key: _plain(value, (key,), where, sources, provenance) for key, value in data.items() if key not in _HEADER
    }
    return Preset(name, family, data["title"], fields, provenance, sources, _text(data.get("notes")))


def _plain(
    value: Any,
    path: tuple[str, ...],
    where: str,
    sources: Mapping[str, Mapping[str, str]],
    provenance: dict[str, Provenance],
) -> Any:
    """The value with certificates taken off; each one is noted under its path."""
    if isinstance(value, list):
        return [_plain(item, (*path, str(i)), where, sources, provenance) for i, item in enumerate(value)]
    if isinstance(value, date):
        return _text(value)
    if not isinstance(value, dict):
        return value
    if "value" in value and value.keys() <= _CERTIFICATE:
        provenance[".".join(path)] = _certificate(value, ".".join(path), where, sources)
        return value["value"]
    return {str(key): _plain(item, (*path, str(key)), where, sources, provenance) for key, item in value.items()}


def _certificate(
    entry: Mapping[str, Any], path: str, where: str, sources: Mapping[str, Mapping[str, str]]
) -> Provenance:
    basis, key = entry.get("basis"), entry.get("source")
    if basis not in BASES:
        raise PresetError(f"{where}: {path}: basis {basis!r} is not one of {', '.join(BASES)}")
    if key is None and basis in _SOURCED:
        raise PresetError(f"{where}: {path}: a {basis} number names its source")
    if key is not None and key not in sources:
        hint = nearest(str(key), sources)
        raise PresetError(f"{where}: {path}: source {key!r} is not listed under 'sources'{hint}")
    source = sources.get(key, {})
    return Provenance(
        entry["value"],
        basis,
        source.get("title", ""),
        source.get("date", ""),
        source.get("url", ""),
        _text(entry.get("note")),
    )


def _text(value: Any) -> str:
    """Text of a header entry; an unquoted date reads as it was written."""
    return "" if value is None else str(value).strip()
