from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeVar

from kvmodel.formulas import laws
from kvmodel.quantity import Number, Quantity, Record

T = TypeVar("T")


class Lomax(Record, Generic[T]):
    """Pareto from zero, P(X > x) = (1 + x/scale)^-shape: the longer it lasted, the longer it will."""

    kind: ClassVar[str] = "lomax"
    shape: Annotated[Number, Quantity("", gt=1)]
    """Tail exponent; the mean scale/(shape-1) exists above 1."""
    scale: T
    """Scale."""

    def law(self) -> Any:
        return laws.Lomax(self.shape, self.scale)
