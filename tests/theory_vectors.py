"""Vectors of theory_vectors.json: chosen by topic, answered by what their inputs say, never by their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Vector = Mapping[str, Any]


def vectors_of(reference_data: Callable[[str], Path], topic: str) -> list[Vector]:
    vectors = json.loads(reference_data("theory_vectors.json").read_text(encoding="utf-8"))
    return [v for v in vectors if v["topic"] == topic]


def disagreements(
    vectors: list[Vector],
    answer: Callable[[Vector], Mapping[str, Any]],
    *,
    not_modelled: Mapping[str, str] | None = None,
    digits: Mapping[str, float] | None = None,
) -> list[str]:
    """One line per expected value that is not met or not answered; a vector no law recognises is one line.

    not_modelled: expected keys that no formula claims to give, with the reason. digits: relative tolerance of keys
    whose vectors are printed more coarsely than they say.
    """
    found = []
    for v in vectors:
        try:
            predicted = answer(v)
        except (KeyError, StopIteration, TypeError, ValueError) as error:
            found.append(f"{v['id']}: no law recognises inputs {sorted(v['inputs'])}, {error!r}")
            continue
        for name, value in v["expected"].items():
            if name in (not_modelled or {}):
                continue
            if predicted.get(name) is None:
                found.append(f"{v['id']}: nothing answers {name!r} from inputs {sorted(v['inputs'])}")
            elif not met(predicted[name], value, v["tolerance"], name, (digits or {}).get(name, 0.0)):
                found.append(f"{v['id']}: {name} is {predicted[name]}, expected {value} within {v['tolerance']}")
    return found


def met(predicted: Any, value: Any, stated: Mapping[str, Any], name: str, digits: float = 0.0) -> bool:
    """Within the tolerance stated for the vector, or for the part of it that this key's name begins with."""
    parts = {part: limits for part, limits in stated.items() if isinstance(limits, dict)}
    if parts:
        tightest = min(parts.values(), key=lambda limits: limits.get("rel", limits.get("abs", np.inf)))
        stated = next((limits for part, limits in parts.items() if name.startswith(part)), tightest)
    rel, within = max(stated.get("rel", 0.0), digits), stated.get("abs", 0.0)
    wanted = np.asarray(value, float)
    return np.shape(predicted) == wanted.shape and predicted == pytest.approx(wanted, rel=rel, abs=within)
