"""Sessions: turns over a growing context, with pauses between them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kvmodel.formulas import laws
from kvmodel.laws import LawChoice, law_choice, law_of
from kvmodel.quantity import Fraction, Quantity, Rate, Record, Seconds, Tokens
from kvmodel.workloads.turns import Turns

Share = Fraction


class PauseShare(LawChoice):
    """One kind of pause: how often it is the one that happens, and the law of its length."""

    share: Share = 1.0
    """Share of all pauses that are of this kind; the shares of a population sum to 1."""


Pause = law_choice("Pause", Seconds, PauseShare)


class Sessions(Record):
    """Sessions that start at a rate, take turns over a growing context, and pause between turns."""

    kind: Literal["sessions"] = "sessions"
    arrivals: Rate
    """Sessions that start per second, on the whole deployment."""
    first_tokens: law_of(Tokens)
    """Prompt tokens of the first turn, a shared prefix at its head included."""
    new_tokens: law_of(Tokens)
    """Prompt tokens that each later turn adds (tool results, the next question)."""
    output_tokens: law_of(Tokens)
    """Tokens generated per turn; their KV stays part of the context."""
    turns: Turns | None = None
    """Turns of a session: a number, or {geometric: {mean: ...}}."""
    return_probability: Annotated[Any, Quantity("", ge=0, lt=1)] | None = None
    """Probability that a paused session comes back; in place of `turns`."""
    pauses: dict[str, Pause] = Field(min_length=1)
    """Kinds of pause by name (tool, human, ...), each with its share and law."""
    tenants: Annotated[Any, Quantity("", ge=1, le=1e6)] = 1.0
    """Equal groups of users that must not share KV with each other."""

    @model_validator(mode="after")
    def _consistent(self) -> Sessions:
        if (self.turns is None) == (self.return_probability is None):
            raise ValueError("needs one of turns or return_probability")
        total = sum(np.asarray(pause.share) for pause in self.pauses.values())
        if len(self.pauses) == 1 and np.all(total != 1):
            raise ValueError("the share of the only kind of pause must be 1")
        if np.any(total <= 0):
            raise ValueError("the shares of the pauses must sum to 1")
        return self

    @property
    def turns_law(self) -> Any:
        """Law of the number of turns (formulas.laws)."""
        return self.turns if self.turns is not None else laws.GeometricTurns(1 / (1 - np.asarray(self.return_probability)))

    @property
    def gap_law(self) -> Any:
        """Law of the pause between two turns: the mixture of its kinds, shares normalised to 1."""
        total = sum(np.asarray(pause.share) for pause in self.pauses.values())
        shares = tuple(np.asarray(pause.share) / total for pause in self.pauses.values())
        return laws.Mixture(shares, tuple(pause.law() for pause in self.pauses.values()))
