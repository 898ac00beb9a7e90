from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from kvmodel.formulas import laws
from kvmodel.quantity import Record

T = TypeVar("T")


class Exponential(Record, Generic[T]):
    """Memoryless: the rate of ending never changes."""

    kind: ClassVar[str] = "exponential"
    mean: T
    """Mean."""

    def law(self) -> Any:
        return laws.Exponential(self.mean)
