"""A provider's prompt cache: the price of keeping a prefix somewhere one does not run."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodel.quantity import Quantity, Record

Multiplier = Annotated[Any, Quantity("", ge=0, le=100)]


class PromptCachePlan(Record):
    """One lifetime on a provider's price list. It is a tier known by its price only."""

    lifetime: Annotated[Any, Quantity("s", gt=0)]
    """Time a prefix is kept after its last read or write."""
    write_multiplier: Multiplier
    """Price of a token written to the cache, over a plain input token."""
    read_multiplier: Multiplier
    """Price of a token read from the cache, over a plain input token."""
    input_price: Annotated[Any, Quantity("USD/token", ge=0)] | None = None
    """Price of a plain input token, to tell money beside multiples."""
