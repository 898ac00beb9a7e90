from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from kvmodel.formulas import laws
from kvmodel.quantity import Fraction, Record

T = TypeVar("T")


class Hyperexponential(Record, Generic[T]):
    """A mixture of two exponentials: mostly short, sometimes long."""

    kind: ClassVar[str] = "hyperexponential"
    short_mean: T
    """Mean of the short branch."""
    long_mean: T
    """Mean of the long branch."""
    long_share: Fraction
    """Probability of the long branch."""

    def law(self) -> Any:
        return laws.Mixture(
            (1 - self.long_share, self.long_share),
            (laws.Exponential(self.short_mean), laws.Exponential(self.long_mean)),
        )
