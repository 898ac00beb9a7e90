"""Traces of the reference data, by what their ground truth says of them and not by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def files_of(ground_truth: Path, key: str) -> dict[str, tuple[Path, dict[str, Any]]]:
    """File and expected answers of each trace at hand whose answers have `key`: block_accesses (block ids), sessions
    (a session file), context_tokens (lengths only)."""
    truth = json.loads(ground_truth.read_text(encoding="utf-8"))
    asked = {name: expected for name, expected in truth.items() if key in expected}
    files = {name: sorted(ground_truth.parent.glob(f"{name}.*")) for name in asked}
    return {name: (files[name][0], expected) for name, expected in asked.items() if files[name]}
