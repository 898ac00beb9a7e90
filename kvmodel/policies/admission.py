"""What may be written into a tier that wears."""

from __future__ import annotations

from kvmodel.quantity import Fraction, Record


class Admission(Record):
    """Rule for writing KV into tiers that wear; everything is written when nothing is said."""

    second_use: bool = False
    """Write a block only once it has been used a second time (a turn that returned)."""
    probability: Fraction = 1.0
    """Share of contexts admitted, chosen at random once per context."""
