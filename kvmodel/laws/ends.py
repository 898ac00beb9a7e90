from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import model_validator

from kvmodel.quantity import Record

T = TypeVar("T")


class Ends(Record, Generic[T]):
    """Two ends, written [low, high] or {low: ..., high: ...}."""

    low: T
    """Lower end."""
    high: T
    """Upper end."""

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, given: Any) -> Any:
        return dict(zip(("low", "high"), given, strict=True)) if isinstance(given, list) and len(given) == 2 else given

    @model_validator(mode="after")
    def _ordered(self) -> Ends[T]:
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError("the first end must not be above the second")
        return self
