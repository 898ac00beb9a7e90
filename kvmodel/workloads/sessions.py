"""Sessions: turns over a growing context, with pauses between them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kvmodel.formulas import laws
from kvmodel.laws import LawChoice, law_choice, law_of
from kvmodel.quantity import Fraction, Number, Quantity, Record, Seconds, Tokens
from kvmodel.units import DAY
from kvmodel.workloads.bursts import Bursts
from kvmodel.workloads.day import DayLevel, levels
from kvmodel.workloads.turns import Turns

Share = Fraction
LEAST_RATE = 1e-6  # of the mean rate, in place of none
Groups = Annotated[Number, Quantity("", ge=1, le=1e6)]


class PauseShare(LawChoice):
    """One kind of pause: how often it is the one that happens, and the law of its length."""

    share: Share = 1.0
    """Share of all pauses that are of this kind; the shares of a population sum to 1."""


Pause = law_choice("Pause", Seconds, PauseShare)


class Sessions(Record):
    """Sessions that start at a rate, take turns over a growing context, and pause between turns."""

    kind: Literal["sessions"] = "sessions"
    arrivals: Annotated[Number, Quantity("/s", gt=0, le=1e9)] | None = None
    """Sessions that start per second, on the whole deployment; the mean over time where a day or bursts change it."""
    agents: Annotated[Number, Quantity("", gt=0, le=1e9)] | None = None
    """A fixed population in place of arrivals: each runs one session after the other and pauses after every turn."""
    day: tuple[DayLevel, ...] = ()
    """How the rate changes, level by level, one after the other; the rate is steady when absent."""
    period: Annotated[Number, Quantity("s", gt=0, le=1e9)] = DAY
    """Time after which the levels repeat."""
    bursts: Bursts | None = None
    """Times of random length at which sessions come faster, in place of `day`. Populations with bursts share them."""
    first_tokens: law_of(Tokens)
    """Prompt tokens of the first turn, without the shared prefix at its head."""
    new_tokens: law_of(Tokens)
    """Prompt tokens that each later turn adds (tool results, the next question)."""
    output_tokens: law_of(Tokens)
    """Tokens generated per turn; their KV stays part of the context."""
    turns: Turns | None = None
    """Turns of a session: a number, or {geometric: {mean: ...}}."""
    return_probability: Annotated[Any, Quantity("", ge=0, lt=1)] | None = None
    """Probability that a paused session comes back; in place of `turns`."""
    deleted: Fraction = 0.0
    """Share of the sessions whose KV is freed as soon as they end; of the others it stays until space is needed."""
    pauses: dict[str, Pause] = Field(min_length=1)
    """Kinds of pause by name (tool, human, ...), each with its share and law."""
    tenants: Groups = 1.0
    """Equal groups of users that must not share KV with each other."""
    identity: dict[str, Groups] = {}
    """What else splits KV that is the same text: adapters, weights versions, KV formats, salts, each by name with the
    number of equal groups it makes. Every group has its own copy of a shared prefix."""

    @model_validator(mode="after")
    def _consistent(self) -> Sessions:
        if (self.turns is None) == (self.return_probability is None):
            raise ValueError("needs one of turns or return_probability")
        if (self.arrivals is None) == (self.agents is None):
            raise ValueError("needs one of arrivals or agents")
        if self.agents is not None and self.day:
            raise ValueError("a day curve goes with arrivals, not with agents, whose number is fixed")
        if self.bursts is not None and (self.day or self.agents is not None):
            raise ValueError("bursts go with arrivals, and not beside a day curve or agents")
        if self.day and np.any(sum(np.multiply(level.share, level.factor) for level in self.day) <= 0):
            raise ValueError("the levels of the day leave no arrivals")
        total = sum(np.asarray(pause.share) for pause in self.pauses.values())
        if len(self.pauses) == 1 and np.all(total != 1):
            raise ValueError("the share of the only kind of pause must be 1")
        if np.any(total <= 0):
            raise ValueError("the shares of the pauses must sum to 1")
        if self.agents is not None and np.any(np.asarray(self.gap_law.mean) <= 0):
            raise ValueError("agents need pauses longer than zero: the pauses set how often they come")
        return self

    @property
    def varies(self) -> bool:
        """Whether the rate changes over time."""
        return bool(self.day) or self.bursts is not None

    @property
    def rate_levels(self) -> tuple[list[Any], list[Any]]:
        """Shares of the time and rates over the mean rate, level by level; one level of 1 where the rate is steady."""
        if self.bursts is None:
            return levels(self.day)
        share, factor = np.asarray(self.bursts.share, float), np.asarray(self.bursts.factor, float)
        return [1.0 - share, share], [(1.0 - share * factor) / (1.0 - share), factor]

    @property
    def session_rate(self) -> Any:
        """Sessions that start per second, averaged over time; of agents, N / (E K * E Gap) [1/s]."""
        if self.agents is None:
            return np.asarray(self.arrivals, float)
        return np.asarray(self.agents, float) / (self.turns_law.mean * self.gap_law.mean)

    def steady(self, factor: Any) -> Sessions:
        """The same population at a rate that does not change, so many times its mean; the factor's axes in front."""
        return self.model_copy(update={"day": (), "bursts": None}).scaled(np.maximum(factor, LEAST_RATE))

    def scaled(self, factor: Any) -> Sessions:
        """The same population `factor` times as busy, the factor's own axes in front."""
        name = "arrivals" if self.agents is None else "agents"
        return self.model_copy(update={name: np.asarray(getattr(self, name), float) * factor})

    @property
    def namespaces(self) -> Any:
        """Groups that cannot share KV with each other: tenants times everything else that splits them."""
        groups = np.asarray(self.tenants, float)
        for count in self.identity.values():
            groups = groups * np.asarray(count, float)
        return groups

    @property
    def turns_law(self) -> Any:
        """Law of the number of turns (formulas.laws)."""
        if self.turns is not None:
            return self.turns
        return laws.GeometricTurns(1 / (1 - np.asarray(self.return_probability)))

    @property
    def gap_law(self) -> Any:
        """Law of the pause between two turns: the mixture of its kinds, shares normalised to 1."""
        total = sum(np.asarray(pause.share) for pause in self.pauses.values())
        shares = tuple(np.asarray(pause.share) / total for pause in self.pauses.values())
        return laws.Mixture(shares, tuple(pause.law() for pause in self.pauses.values()))
