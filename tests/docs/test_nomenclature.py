"""The spellings of the nomenclature are those of the code, in both languages."""

from __future__ import annotations

import re

import pytest

from kvmodel.analyses.quantities import QUANTITIES
from tests.conftest import ROOT

PAGES = ("nomenclature.md", "nomenclature.zh-CN.md")


def cells(name, width, column):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return [re.findall(r"`([^`]+)`", row[column]) for row in rows if len(row) == width]


@pytest.fixture(scope="module")
def source():
    files = [path for kind in ("py", "yaml") for path in sorted((ROOT / "kvmodel").rglob(f"*.{kind}"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_every_spelling_is_found_in_the_code(source):
    words = set(re.findall(r"[\w.]*\w", source))
    missing = [s for found in cells(PAGES[0], 5, 3) for s in found if s not in words]
    assert missing == []


def test_both_languages_spell_alike():
    assert cells(PAGES[0], 5, 3) == cells(PAGES[1], 5, 3)
    assert cells(PAGES[0], 2, 0) == cells(PAGES[1], 2, 0)


def test_every_group_of_results_is_named():
    groups = {group for found in cells(PAGES[0], 2, 0) for group in found}
    assert {quantity.split(".")[0] for quantity in QUANTITIES} <= groups
