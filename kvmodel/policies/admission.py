"""What may be written into a tier that wears."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodel.quantity import Fraction, Quantity, Record, Tokens


class Admission(Record):
    """Rule for writing KV into tiers that wear; everything is written when nothing is said."""

    second_use: bool = False
    """Write a block only once it has been used a second time (a turn that returned)."""
    uses: Annotated[Any, Quantity("", ge=1, le=64)] = 1.0
    """Write a block only at its k-th use, a whole number; creation is the first. second_use is 2."""
    minimum_tokens: Tokens = 0.0
    """Write a context, with all before it, only once it is so long, its shared prefix included."""
    probability: Fraction = 1.0
    """Share of contexts admitted, chosen at random once per context."""
