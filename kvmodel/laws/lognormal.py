from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import model_validator

from kvmodel.formulas import laws
from kvmodel.quantity import Number, Quantity, Record

T = TypeVar("T")
NonNegative = Annotated[Number, Quantity("", ge=0, le=10)]
Z90 = 1.2815515655446004  # standard normal quantile of 0.9


class Lognormal(Record, Generic[T]):
    """Its logarithm is normal: one of median or mean, and one of p90, sigma (of the logarithm) or cv."""

    kind: ClassVar[str] = "lognormal"
    median: T | None = None
    """Half lie below."""
    mean: T | None = None
    """Mean."""
    p90: T | None = None
    """Nine in ten lie below; needs the median."""
    sigma: NonNegative | None = None
    """Standard deviation of the natural logarithm."""
    cv: NonNegative | None = None
    """Standard deviation over mean."""

    @model_validator(mode="after")
    def _one_location_one_spread(self) -> Lognormal[T]:
        if (self.median is None) == (self.mean is None):
            raise ValueError("needs one of median or mean")
        if sum(spread is not None for spread in (self.p90, self.sigma, self.cv)) != 1:
            raise ValueError("needs one of p90, sigma or cv")
        if self.p90 is not None:
            if self.median is None:
                raise ValueError("p90 goes with median, not with mean")
            if not np.all(np.asarray(self.p90) >= np.asarray(self.median)):
                raise ValueError("p90 must not be below the median")
        return self

    def law(self) -> Any:
        if self.p90 is not None:
            sigma = np.log(np.asarray(self.p90) / self.median) / Z90
        elif self.cv is not None:
            sigma = np.sqrt(np.log1p(np.square(self.cv)))
        else:
            sigma = np.asarray(self.sigma)
        median = self.mean / np.exp(sigma**2 / 2) if self.median is None else self.median
        return laws.Lognormal(median, sigma)
