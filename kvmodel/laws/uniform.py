from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from kvmodel.formulas import laws
from kvmodel.laws.ends import Ends

T = TypeVar("T")


class Uniform(Ends[T], Generic[T]):
    """Equally likely anywhere between two ends: [low, high]."""

    kind: ClassVar[str] = "uniform"

    def law(self) -> Any:
        return laws.Uniform(self.low, self.high)
