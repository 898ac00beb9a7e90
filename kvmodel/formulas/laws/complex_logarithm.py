"""A logarithm numpy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["log1p"]

Array = NDArray[Any]


def log1p(z: Array) -> Array:
    """log(1 + z) of complex z, accurate for small z (numpy's own is not: it adds the one first); -18 at z =
    -1."""
    growth = np.maximum(z.real * (2.0 + z.real) + z.imag**2, -1.0 + 1e-16)
    return 0.5 * np.log1p(growth) + 1j * np.arctan2(z.imag, 1.0 + z.real)
