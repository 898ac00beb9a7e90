"""How many turns a session has."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Discriminator, Tag

from kvmodel.formulas import laws
from kvmodel.quantity import Number, Quantity, Record

MeanTurns = Annotated[Number, Quantity("", ge=1, le=1e6)]


class Geometric(Record):
    """After every turn the session goes on with the same probability 1 - 1/mean."""

    mean: MeanTurns
    """Mean number of turns of a session."""


class TurnsLaw(Record):
    """A law of the number of turns."""

    geometric: Geometric
    """After every turn the session goes on with the same probability."""


Turns = Annotated[
    Annotated[MeanTurns, AfterValidator(laws.FixedTurns), Tag("value")]
    | Annotated[TurnsLaw, AfterValidator(lambda record: laws.GeometricTurns(record.geometric.mean)), Tag("law")],
    Discriminator(lambda given: "law" if hasattr(given, "keys") else "value"),
]
