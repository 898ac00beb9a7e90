"""The catalogue reads preset files: plain fields, and the birth certificate of each number beside them."""

from __future__ import annotations

from importlib.resources import files

import pytest

from kvmodel.errors import PresetError
from kvmodel.presets import catalogue
from kvmodel.study.source import read_text

EXAMPLE = """\
title: A drive
kind: nvme
notes: Not real.
capacity: {value: 6.4 TB, basis: datasheet, source: sheet, note: usable}
endurance:
  dwpd: {value: 3, basis: derived}
curve: [{value: 1, basis: assumed}, 2]
sources:
  sheet: {title: Data sheet, publisher: Maker, date: 2026-01-02, url: https://example.org, locator: page 3}
"""
SHIPPED = [(family, name) for family in catalogue.FAMILIES for name in catalogue.names(family)]


def test_certificates_are_taken_off_and_kept_beside() -> None:
    preset = catalogue.parse(EXAMPLE, "drives", "a")
    assert preset.fields == {"kind": "nvme", "capacity": "6.4 TB", "endurance": {"dwpd": 3}, "curve": [1, 2]}
    assert (preset.name, preset.family, preset.title, preset.notes) == ("a", "drives", "A drive", "Not real.")
    assert preset.provenance["capacity"] == catalogue.Provenance(
        "6.4 TB", "datasheet", "Data sheet", "2026-01-02", "https://example.org", "usable"
    )
    assert preset.provenance["endurance.dwpd"] == catalogue.Provenance(3, "derived")
    assert preset.provenance.keys() == {"capacity", "endurance.dwpd", "curve.0"}
    assert preset.sources["sheet"]["locator"] == "page 3"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "a 'title'"),
        ("kind: x", "a 'title'"),
        ("", "a 'title'"),
        ("title: T\na: {value: 1}", "a: basis None is not one of"),
        ("title: T\na: {b: {value: 1, basis: guessed}}", "a.b: basis 'guessed' is not one of datasheet"),
        ("title: T\na: {value: 1, basis: measured}", "a: a measured number names its source"),
        (
            "title: T\na: {value: 1, basis: measured, source: shet}\nsources: {sheet: {title: S}}",
            "did you mean 'sheet'?",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_field(text: str, says: str) -> None:
    with pytest.raises(PresetError) as caught:
        catalogue.parse(text, "gpus", "broken")
    assert str(caught.value).startswith("preset gpus/broken: ")
    assert says in str(caught.value)


def test_unknown_names_and_families() -> None:
    with pytest.raises(PresetError, match="unknown preset family 'gpu'; did you mean 'gpus'"):
        catalogue.names("gpu")
    with pytest.raises(PresetError, match="there are llms, gpus"):
        catalogue.load("zzz", "x")
    known = catalogue.names("gpus")[0]
    with pytest.raises(PresetError, match=rf"did you mean '{known}'\?; 'kvmodel presets list gpus'"):
        catalogue.load("gpus", known + "x")
    with pytest.raises(PresetError, match="no preset"):
        catalogue.load("gpus", "../llms/x")


def test_loading_twice_reads_once() -> None:
    name = catalogue.names("gpus")[0]
    assert catalogue.load("gpus", name) is catalogue.load("gpus", name)
    assert list(catalogue.names("gpus")) == sorted(catalogue.names("gpus"))


@pytest.mark.parametrize(("family", "name"), SHIPPED)
def test_shipped_presets_load_and_hold_no_yaml_surprise(family: str, name: str) -> None:
    """A study's stricter reading of the same file agrees: no NO, 1e3, base 60, octal or repeated key."""
    preset = catalogue.load(family, name)
    assert preset.title and preset.fields
    text = (files("kvmodel.presets") / family / f"{name}.yaml").read_text(encoding="utf-8")
    assert catalogue.preset_of(read_text(text, name).data, family, name) == preset
