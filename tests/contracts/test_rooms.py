"""Who imports whom, and what a plain import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from importlinter.cli import lint_imports

HEAVY = ("numpy", "scipy", "pandas", "pydantic", "yaml", "altair", "typer", "xlwings")


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_contract():
    assert lint_imports(no_cache=True) == 0


def test_import_of_the_package_is_cheap():
    assert not set(HEAVY) & loaded_by("import kvmodel")


def test_the_version_needs_nothing_heavy():
    statement = "import sys; sys.argv = ['kvmodel', '--version']; from kvmodel.__main__ import main; main()"
    assert not set(HEAVY) & loaded_by(statement)


def test_help_loads_no_numbers():
    modules = loaded_by("from kvmodel.cli.app import run; run(['--help'])")
    assert not {"numpy", "scipy", "pandas", "pydantic", "altair", "yaml"} & modules


@pytest.mark.parametrize("statement", ["import kvmodel.study.run", "import kvmodel.formulas.reuse"])
def test_slow_modules_are_not_loaded_by_a_plan(statement):
    assert not {"scipy.stats", "scipy.optimize", "altair", "pandas"} & loaded_by(statement)


def test_reading_a_study_loads_no_closed_form():
    modules = loaded_by("import kvmodel.study.expand")
    assert not {"scipy", "kvmodel.formulas.reuse", "kvmodel.analyses.plan"} & modules
