"""What every spreadsheet function keeps to, whatever it answers."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from kvmodel import units
from kvmodel.excel import functions
from kvmodel.excel.entry import CATALOGUE, Number
from tests.conftest import ROOT

ENTRIES = pytest.mark.parametrize("entry", CATALOGUE.values(), ids=str.lower(" ".join(CATALOGUE)).split())
LONGEST_HELP = 255  # characters the function wizard shows


def test_the_first_set_is_there():
    assert list(CATALOGUE) == [
        "KV_BYTES_PER_TOKEN",
        "KV_TOKENS_THAT_FIT",
        "KV_BREAK_EVEN_TOKENS",
        "KV_HIT_CURVE",
        "KV_DRIVE_LIFETIME",
        "KV_PLAN",
    ]


@ENTRIES
def test_name(entry):
    # a dot would not survive the generated VBA; Excel takes at most 128 characters
    assert re.fullmatch(r"KV_[A-Z0-9_]{1,125}", entry.name)
    assert getattr(functions, entry.name.lower()) is entry.function


@ENTRIES
def test_signature_is_what_xlwings_takes(entry):
    parameters = inspect.signature(entry.function).parameters.values()
    assert {p.kind for p in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert [p.name for p in parameters] == list(entry.arguments)
    assert "caller" not in entry.arguments  # xlwings puts the calling range there


@ENTRIES
def test_every_argument_and_column_says_what_it_is_in_which_unit(entry):
    assert 0 < len(entry.help) <= LONGEST_HELP
    for argument in entry.arguments.values():
        assert argument.doc and argument.help.endswith(f"[{argument.unit or 'number'}]")
        assert len(argument.help) <= LONGEST_HELP
    assert all(column.name and column.doc for column in entry.columns)


@ENTRIES
def test_units_of_numbers_are_known_and_bounds_have_examples(entry):
    for argument in entry.arguments.values():
        if isinstance(argument, Number):
            assert units.unit_factor(argument.unit)[0] in units.DIMENSIONS


@ENTRIES
def test_an_optional_argument_says_what_happens_without_it(entry):
    for name, argument in entry.arguments.items():
        if entry.is_optional(name):
            assert re.search("omitted|^Only", argument.doc), name


@ENTRIES
def test_the_documentation_has_it_word_for_word(entry):
    page = (ROOT / "docs" / "excel.md").read_text(encoding="utf-8")
    optional = [f"[{name}]" if entry.is_optional(name) else name for name in entry.arguments]
    assert f"{entry.name}({', '.join(optional)})" in page
    assert entry.doc in page
    for name, argument in entry.arguments.items():
        assert f"| `{name}` | {argument.doc} | {argument.unit or 'number'} |" in page
    for column in entry.columns if entry.is_table else ():
        assert f"| `{column.name}` | {column.doc} | {column.unit or 'share'} |" in page


def test_the_catalogue_needs_neither_a_spreadsheet_nor_pandas():
    code = "import sys, kvmodel.excel.functions, kvmodel.excel.wrapper; print({'xlwings', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "set()"


def test_no_licence_key_anywhere():
    places = [*(ROOT / "kvmodel" / "excel").glob("*.py"), *(ROOT / "examples" / "spreadsheet").iterdir()]
    assert places and not any("LICENSE_KEY" in path.read_text(encoding="utf-8") for path in places if path.is_file())
