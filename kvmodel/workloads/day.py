"""How the rate of sessions changes over the day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from kvmodel.quantity import Number, Quantity, Record

Positive = Annotated[Number, Quantity("", gt=0, le=1)]
Factor = Annotated[Number, Quantity("", ge=0, le=1e6)]


class DayLevel(Record):
    """A part of the day with its own rate."""

    share: Positive
    """Share of the day; the shares of a curve are normalised to sum to 1."""
    factor: Factor
    """Rate relative to the other levels; the mean over the day is the stated rate."""


def levels(day: Sequence[DayLevel]) -> tuple[list[Any], list[Any]]:
    """Shares of the time, which sum to 1, and rates over the mean rate; one level of 1 without a curve."""
    if not day:
        return [np.ones(())], [np.ones(())]
    total = sum(np.asarray(level.share, float) for level in day)
    shares = [np.asarray(level.share, float) / total for level in day]
    mean = sum(share * level.factor for share, level in zip(shares, day, strict=True))
    return shares, [np.asarray(level.factor, float) / mean for level in day]
