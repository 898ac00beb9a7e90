"""How many turns a session has."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from kvmodel.formulas import laws
from kvmodel.quantity import Number, Quantity, Record

MeanTurns = Annotated[Number, Quantity("", ge=1, le=1e6)]


class Geometric(Record):
    """After every turn the session goes on with the same probability 1 - 1/mean."""

    mean: MeanTurns
    """Mean number of turns of a session."""


class TurnsLaw(Record):
    """A law of the number of turns."""

    geometric: Geometric | None = None
    """After every turn the session goes on with the same probability."""
    equally_likely: Annotated[tuple[Annotated[int, Field(ge=1, le=100_000)], ...], Field(min_length=1)] | None = None
    """Numbers of turns, each as likely as the others; read off data."""

    @model_validator(mode="after")
    def _exactly_one(self) -> TurnsLaw:
        if (self.geometric is None) == (self.equally_likely is None):
            raise ValueError("needs exactly one law of geometric, equally_likely")
        return self

    def law(self) -> laws.Turns:
        """The law itself (a member of formulas.laws)."""
        if self.geometric is not None:
            return laws.GeometricTurns(self.geometric.mean)
        return laws.TabulatedTurns(np.bincount(self.equally_likely)[1:].astype(float))


Turns = Annotated[
    Annotated[MeanTurns, AfterValidator(laws.FixedTurns), Tag("value")]
    | Annotated[TurnsLaw, AfterValidator(lambda record: record.law()), Tag("law")],
    Discriminator(lambda given: "law" if hasattr(given, "keys") else "value"),
]
