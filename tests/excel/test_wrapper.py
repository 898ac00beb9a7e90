"""What a spreadsheet gets: the function's answer, cleaned, and errors by one switch."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from kvmodel.excel import functions
from kvmodel.excel.convert import LONGEST_TEXT, cell
from kvmodel.excel.entry import CATALOGUE
from kvmodel.excel.wrapper import cell_function
from tests.conftest import ROOT

CALLS = {
    "KV_BYTES_PER_TOKEN": ([["llama-3.1-70b"], ["deepseek-v3"]], None, [[1, 8]]),
    "KV_TOKENS_THAT_FIT": ("llama-3.1-70b", "h100-sxm", [[1, 4]]),
    "KV_BREAK_EVEN_TOKENS": ([[0.1]], [[3.0], [20.0]], [[120_000.0]], [[45e-6]]),
    "KV_HIT_CURVE": ([[1e3, 1e4]], 0.01, 400, 60, 20, 20, 140),
    "KV_DRIVE_LIFETIME": ([[1000.0]], [["micron-9550-max-6.4tb", 35_040.0]], [[4]]),
    "KV_PLAN": (str(ROOT / "examples" / "worked_example" / "study.yaml"), None, "size.*"),
}


class RefusedError(Exception):
    """Stands for the spreadsheet package's own error."""


@pytest.mark.parametrize("name", CATALOGUE)
def test_wrapper_answers_as_the_function_does(name):
    answer = cell_function(CATALOGUE[name])(*CALLS[name])
    plain = CATALOGUE[name].function(*CALLS[name])
    assert [[value or None for value in row] for row in answer] == [[value or None for value in row] for row in plain]
    assert {type(value) for row in answer for value in row} <= {float, str, bool, type(None)}
    assert all(math.isfinite(value) for row in answer for value in row if isinstance(value, float))


@pytest.mark.parametrize("name", CATALOGUE)
def test_wrapper_keeps_the_signature_and_drops_annotations(name):
    wrapper, function = cell_function(CATALOGUE[name]), CATALOGUE[name].function
    assert wrapper.__name__ == name and wrapper.__doc__ == CATALOGUE[name].help and not wrapper.__annotations__
    ours, theirs = inspect.signature(wrapper).parameters, inspect.signature(function).parameters
    assert {n: p.default for n, p in ours.items()} == {n: p.default for n, p in theirs.items()}
    assert all(p.annotation is inspect.Parameter.empty for p in ours.values())


def test_infinite_answers_are_words():
    assert cell_function(CATALOGUE["KV_BREAK_EVEN_TOKENS"])(1, 1, 1e6, 1e-9) == [["never"]]
    assert cell_function(CATALOGUE["KV_DRIVE_LIFETIME"])(0, 35_040) == [["unlimited"]]
    assert cell_function(CATALOGUE["KV_HIT_CURVE"])(100, 1, 1000, 100, 1, 10, 100)[1] == [100.0, 0.0, 0.0, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), True),
        (np.inf, "inf"),
        (-np.inf, "-inf"),
        (np.nan, None),
        (None, None),
        ("text", "text"),
        ("x" * 40_000, "x" * LONGEST_TEXT),
        ((1, 2), "(1, 2)"),
    ],
)
def test_cells_hold_only_what_a_spreadsheet_takes(value, expected):
    found = cell(value, "inf")
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("arguments", [("llama-3.1-7b",), ("llama-3.1-70b", "bf17"), ("llama-3.1-70b", "bf16", "two")])
def test_one_switch_turns_errors_into_text_or_an_exception(arguments):
    entry = CATALOGUE["KV_BYTES_PER_TOKEN"]
    [[text]] = cell_function(entry)(*arguments)
    assert isinstance(text, str) and len(text) > 20
    with pytest.raises(RefusedError) as error:
        cell_function(entry, RefusedError)(*arguments)
    assert str(error.value) == text


def test_a_defect_is_not_hidden_as_a_users_mistake(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(functions, "kv_size", broken)
    with pytest.raises(ZeroDivisionError):
        cell_function(CATALOGUE["KV_BYTES_PER_TOKEN"])("llama-3.1-70b")
