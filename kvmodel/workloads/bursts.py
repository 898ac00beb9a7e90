"""Bursts of sessions: times of random length at which they come faster."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import model_validator

from kvmodel.quantity import Number, Quantity, Record


class Bursts(Record):
    """Sessions start at two rates in turn, each for a time of random, exponential length."""

    share: Annotated[Number, Quantity("", gt=0, lt=1)]
    """Share of the time in a burst."""
    factor: Annotated[Number, Quantity("", ge=0, le=1e6)]
    """Rate in a burst over the mean rate, which is the stated one; at most 1 / share, with nothing in between then."""
    mean_length: Annotated[Number, Quantity("s", gt=0, le=1e9)]
    """Mean length of a burst."""

    @model_validator(mode="after")
    def _consistent(self) -> Bursts:
        if np.any(np.asarray(self.share, float) * self.factor > 1.0 + 1e-9):
            raise ValueError("the factor of bursts is over the mean rate and can be no more than 1 / share")
        return self
