from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import Field, model_validator

from kvmodel.formulas import laws
from kvmodel.quantity import Record

T = TypeVar("T")


class Empirical(Record, Generic[T]):
    """Read off data: quantiles at equally spaced probabilities, uniform between neighbours."""

    kind: ClassVar[str] = "empirical"
    quantiles: Annotated[tuple[T, ...], Field(min_length=2)]
    """From the smallest value to the largest; n + 1 of them cut the law into n equally likely parts."""

    @model_validator(mode="after")
    def _ordered(self) -> Empirical[T]:
        for below, above in pairwise(self.quantiles):
            if not np.all(np.asarray(below) <= np.asarray(above)):
                raise ValueError("quantiles must not fall")
        return self

    def law(self) -> Any:
        return laws.Empirical(np.stack(np.broadcast_arrays(*(np.asarray(q, float) for q in self.quantiles))))
