"""Registration with xlwings, without a spreadsheet: its Windows decorators run over stub COM modules.

In a process of its own, since stubs and a wrong platform must not leak into other tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.conftest import ROOT

pytest.importorskip("xlwings")

STUBS = dedent("""
    import json, sys, types
    for name in ("pythoncom", "pywintypes", "win32com", "win32com.client"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["pythoncom"].CoInitialize = lambda: None
    sys.modules["pywintypes"].com_error = type("com_error", (Exception,), {})
    sys.modules["win32com.client"].Dispatch = None
    import xlwings
    from xlwings import conversion, udfs
    xlwings.engines.add(xlwings.Engine(impl=types.SimpleNamespace(
        name="excel", type="desktop", clean_value_data=lambda data, *options: data,
        prepare_xl_data_element=lambda x, *options: x)))
    xlwings.engines["excel"].activate()
    xlwings.func, xlwings.arg, xlwings.ret = udfs.xlfunc, udfs.xlarg, udfs.xlret

    sys.path.insert(0, "examples/spreadsheet")
    import kv_functions

    def call(name, *args):
        # what call_udf does between the COM calls
        function = getattr(kv_functions, name)
        info = function.__xlfunc__
        cells = [conversion.read(None, value, a["options"]) for value, a in zip(args, info["args"])]
        rest = [a["optional"] for a in info["args"][len(args):]]
        return conversion.write(function(*cells, *rest), None, info["ret"]["options"])
""")


def run(code: str):
    result = subprocess.run([sys.executable, "-c", STUBS + dedent(code)], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_function_registers_with_its_help():
    from kvmodel.excel import functions  # noqa: F401
    from kvmodel.excel.entry import CATALOGUE

    found = run("""
        print(json.dumps({name: {
            "doc": f.__xlfunc__["ret"]["doc"], "category": f.__xlfunc__["category"], "name": f.__xlfunc__["name"],
            "wizard": f.__xlfunc__["call_in_wizard"],
            "args": {a["name"]: [a["doc"], a["options"], "optional" in a] for a in f.__xlfunc__["args"]}}
            for name, f in vars(kv_functions).items() if hasattr(f, "__xlfunc__")}))
    """)
    assert found == {
        name: {
            "doc": entry.help,
            "category": "kvmodel",
            "name": name,
            "wizard": not entry.slow,
            "args": {a: [argument.help, {"ndim": 2}, entry.is_optional(a)] for a, argument in entry.arguments.items()},
        }
        for name, entry in CATALOGUE.items()
    }


def test_calls_spill_and_mistakes_are_one_cell_of_text():
    answers = run("""
        print(json.dumps([
            call("KV_BYTES_PER_TOKEN", "llama-3.1-70b"),
            call("KV_BYTES_PER_TOKEN", (("llama-3.1-70b",), ("deepseek-v3",)), None, ((1.0, 8.0),)),
            call("KV_BREAK_EVEN_TOKENS", 1.0, 1.0, 1e6, 1e-9),
            call("KV_HIT_CURVE", ((1e3,), (1e4,)), 0.01, 400.0, 60.0, 20.0, 20.0, 140.0)[0],
            call("KV_BYTES_PER_TOKEN", "llama-3.1-7b"),
        ]))
    """)
    assert answers[0] == [[327_680]]
    assert answers[1] == [[327_680, 327_680], [70_272, 562_176]]
    assert answers[2] == [["never"]]
    assert answers[3] == ["capacity_tokens", "ceiling", "resident", "kept"]
    assert len(answers[4]) == len(answers[4][0]) == 1 and "did you mean" in answers[4][0][0]


def test_without_a_spreadsheet_the_functions_are_plain_ones():
    code = "from kvmodel.excel.adapter import *; print(KV_BYTES_PER_TOKEN('llama-3.1-70b'))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[[327680.0]]"
