"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at random: no deadlines, and the same examples on every run. Look for others with
# `--hypothesis-profile=explore`.
settings.register_profile("same_examples", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=200)
settings.load_profile("same_examples")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def reference_data():
    """Function from a file name to its path in the reference data, which the project does not carry.

    KVMODEL_REFERENCE_DIR names another directory with files of the same names. Skips where neither exists; CI has them.
    """
    directory = Path(os.environ.get("KVMODEL_REFERENCE_DIR", ROOT.parent / "shared" / "data"))

    def find(name: str) -> Path:
        path = directory / name
        if not path.exists():
            if os.environ.get("CI"):
                pytest.fail(f"CI must have the reference data, {path} is missing")
            pytest.skip(f"no reference data at {path}")
        return path

    return find
