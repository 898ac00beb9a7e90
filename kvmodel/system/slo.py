"""Limits a turn must meet."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import model_validator

from kvmodel.quantity import Quantity, Record

Limit = Annotated[Any, Quantity("s", gt=0, le=1e7)]


class Percentile(Record):
    """A time that a share of all turns must keep, for example {p95: 2 s}."""

    p50: Limit | None = None
    """Half of the turns."""
    p90: Limit | None = None
    """Nine in ten."""
    p95: Limit | None = None
    """Nineteen in twenty."""
    p99: Limit | None = None
    """Ninety-nine in a hundred."""

    @model_validator(mode="after")
    def _one(self) -> Percentile:
        if sum(getattr(self, name) is not None for name in ("p50", "p90", "p95", "p99")) != 1:
            raise ValueError("needs exactly one of p50, p90, p95, p99")
        return self

    @property
    def share(self) -> float:
        """Share of turns that must keep the limit."""
        return next(int(name[1:]) / 100 for name in ("p50", "p90", "p95", "p99") if getattr(self, name) is not None)

    @property
    def limit(self) -> Any:
        """The limit [s]."""
        return next(value for name in ("p50", "p90", "p95", "p99") if (value := getattr(self, name)) is not None)


class Slo(Record):
    """Limits of a qualified session."""

    ttft: Percentile
    """Time to first token of a turn."""
    tpot: Percentile | None = None
    """Time per output token of a turn."""
    end_to_end: Percentile | None = None
    """Time from the request to the last token of a turn."""
