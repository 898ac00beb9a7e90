"""Draws of uncertain numbers: one independent stream per path, so that order and company do not matter."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import numpy as np

from kvmodel.laws import law_choice
from kvmodel.quantity import Number, Quantity

BaseUnits = Annotated[Number, Quantity("")]


def stream(seed: int, path: str) -> np.random.Generator:
    """Random generator keyed by the study's seed and the dotted path of the number."""
    key = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big")
    return np.random.default_rng(np.random.SeedSequence([seed, key]))


def stratified(generator: np.random.Generator, count: int) -> np.ndarray:
    """Latin-hypercube probabilities in (0, 1), shape (count,): one in each of `count` equal strata, in random order."""
    return (generator.permutation(count) + generator.random(count)) / count


def drawn(path: str, law: Any, seed: int, count: int) -> np.ndarray:
    """Draws of one uncertain number, shape (count,). `law` is a mapping whose numbers are in base units."""
    chosen = law_choice("Uncertain", BaseUnits).model_validate(law).law()
    return np.asarray(chosen.quantile(stratified(stream(seed, path), count)), float)
