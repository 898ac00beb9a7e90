"""scipy.special at first use: loading it takes longer than validating a study, which needs none of it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from scipy import special

    globals()[name] = function = getattr(special, name)
    return function
