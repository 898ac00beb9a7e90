from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import model_validator

from kvmodel.formulas import laws
from kvmodel.laws.ends import Ends

T = TypeVar("T")


class Loguniform(Ends[T], Generic[T]):
    """Equally likely in ratio between two positive ends: [low, high]. For prices and other scale-free unknowns."""

    kind: ClassVar[str] = "loguniform"

    @model_validator(mode="after")
    def _positive(self) -> Loguniform:
        if not np.all(np.asarray(self.low) > 0):
            raise ValueError("low must be more than 0 for a loguniform law")
        return self

    def law(self) -> Any:
        return laws.Loguniform(self.low, self.high)
