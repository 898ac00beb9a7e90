"""What an analysis gives back: numbers with unit and definition, and curves of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Answer:
    """One quantity of one case. Its value is an array over the study's axes (a scalar is the case of none)."""

    quantity: str
    value: Any
    unit: str
    definition: str
    arm: str = ""
    population: str = ""
    tier: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """Answers over one more axis, for drawing and for knees."""

    axis: str
    values: np.ndarray
    unit: str
    answers: tuple[Answer, ...]
