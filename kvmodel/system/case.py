"""One case of a study: what analyses are given. Its numbers may be arrays over the study's axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from kvmodel.errors import Inconsistent, nearest
from kvmodel.formulas import laws
from kvmodel.policies import Policy
from kvmodel.policies.eviction import EVICTIONS
from kvmodel.quantity import Record
from kvmodel.system.deployment import Deployment
from kvmodel.system.llm import Llm
from kvmodel.system.prices import Prices
from kvmodel.system.slo import Slo
from kvmodel.tiers import SPEED_ORDER, Tier
from kvmodel.tiers.hbm import Hbm
from kvmodel.workloads import Population
from kvmodel.workloads.sessions import Sessions
from kvmodel.workloads.shared_prefix import SharedPrefix


class Case(Record):
    """A model on a deployment with tiers, under a workload, with limits and prices."""

    model: Llm
    """The model served."""
    deployment: Deployment
    """GPUs, parallel layout, engine."""
    tiers: dict[str, Tier] = Field(min_length=1)
    """Places that hold KV, in fast-to-slow order; the first is the GPUs' own memory."""
    policy: Policy = Policy()
    """Placement, admission, eviction."""
    workload: dict[str, Population] = Field(min_length=1)
    """Populations by name."""
    slo: Slo | None = None
    """Limits of a qualified session."""
    prices: Prices = Prices()
    """Price list."""

    @model_validator(mode="after")
    def _consistent(self) -> Case:
        problems = [*self._tier_problems(), *self._prefix_problems()]
        if problems:
            raise Inconsistent(problems)
        return self

    def _tier_problems(self) -> list[str]:
        names = list(self.tiers)
        problems = []
        if not isinstance(self.tiers[names[0]], Hbm):
            problems.append(f"tiers: the first tier must be of kind hbm, {names[0]!r} is {self.tiers[names[0]].kind}")
        for upper, lower in itertools.pairwise(names):
            if SPEED_ORDER[self.tiers[lower].kind] < SPEED_ORDER[self.tiers[upper].kind]:
                problems.append(
                    f"tiers: out of order, {lower!r} ({self.tiers[lower].kind}) is faster than "
                    f"{upper!r} ({self.tiers[upper].kind}); list them fast to slow"
                )
            if isinstance(self.tiers[lower], Hbm):
                problems.append(f"tiers: only the first tier may be of kind hbm, {lower!r} is a second one")
        return problems

    def _prefix_problems(self) -> list[str]:
        problems = []
        if not self.sessions:
            problems.append("workload: needs at least one population of kind sessions")
        days = {
            name: [np.asarray(p.period).tolist(), *(np.asarray(level.share).tolist() for level in p.day)]
            for name, p in self.sessions.items()
            if p.day
        }
        if any(shares != next(iter(days.values())) for shares in days.values()):
            problems.append(
                f"workload: the days of {', '.join(days)} must repeat after the same period "
                "and be cut into the same shares, level by level"
            )
        bursts = {name: p.bursts for name, p in self.sessions.items() if p.bursts is not None}
        stated = [[np.asarray(number).tolist() for number in _numbers(one)] for one in bursts.values()]
        if any(numbers != stated[0] for numbers in stated):
            problems.append(f"workload: {', '.join(bursts)} share their bursts, so state the same ones for all of them")
        if days and bursts:
            problems.append(
                f"workload: {', '.join(days)} follow a day and {', '.join(bursts)} bursts; use one of the two"
            )
        problems += [
            f"policy.pinned: {name!r} is not a population of kind shared_prefix"
            for name in self.policy.pinned
            if name not in self.prefixes
        ]
        nesting = [*self._nesting_problems(), *self._rule_problems()]
        return [*problems, *nesting] if nesting else [*problems, *self._user_problems(), *self._pinning_problems()]

    def _nesting_problems(self) -> Iterator[str]:
        """Names that lead nowhere, and those that lead back."""
        seen: set[str] = set()
        for name, prefix in self.prefixes.items():
            if prefix.under is not None and prefix.under not in self.prefixes:
                others = [other for other in self.prefixes if other != name]
                known = f"; there are {', '.join(others)}" if others else "; there is no other"
                hint = nearest(prefix.under, others) or known
                yield f"workload.{name}.under: {prefix.under!r} is not a population of kind shared_prefix{hint}"
            path = [name]
            while (above := self.prefixes[path[-1]].under) in self.prefixes and above not in path:
                path.append(above)
            if above == name and name not in seen:
                seen |= set(path)
                yield f"workload.{name}.under: {name!r} lies under itself ({' under '.join([*path, name])})"

    def _rule_problems(self) -> Iterator[str]:
        """Prefixes that nest, under a rule of eviction that is modelled without."""
        nested = [name for name, prefix in self.prefixes.items() if prefix.under is not None]
        if nested and not (EVICTIONS[self.policy.eviction].nests and self.policy.retention_renewed):
            rule = self.policy.eviction if self.policy.retention_renewed else "retention_renewed: false"
            names = ", ".join(name for name, rule in EVICTIONS.items() if rule.nests)
            yield (
                f"workload.{nested[0]}.under: prefixes that nest are modelled under eviction {names} with a renewed "
                f"retention, not under {rule}"
            )

    def _user_problems(self) -> Iterator[str]:
        users: dict[str, list[str]] = {}
        for name, prefix in self.prefixes.items():
            for user in prefix.used_by if prefix.used_by is not None else tuple(self.sessions):
                if user not in self.sessions:
                    yield (
                        f"workload.{name}.used_by: {user!r} is not a population of kind sessions "
                        f"(there are {', '.join(self.sessions)})"
                    )
                users.setdefault(user, []).append(name)
        for user, names in users.items():
            above = {other for name in names for other in self.chain(name) if other != name}
            last = [name for name in names if name not in above]
            if len(last) > 1:
                yield (
                    f"workload: {user} has several shared prefixes ({', '.join(last)}); say used_by, or under "
                    "where one comes after the other"
                )

    def _pinning_problems(self) -> Iterator[str]:
        for name in self.policy.pinned:
            if name in self.prefixes:
                loose = [f"{other!r}" for other in self.chain(name) if other not in self.policy.pinned]
                if loose:
                    yield f"policy.pinned: {name!r} is found only with what it lies under; pin {', '.join(loose)} too"

    @property
    def sessions(self) -> dict[str, Sessions]:
        """The populations that generate, pause and return."""
        return {name: p for name, p in self.workload.items() if isinstance(p, Sessions)}

    @property
    def prefixes(self) -> dict[str, SharedPrefix]:
        """The shared prefixes."""
        return {name: p for name, p in self.workload.items() if isinstance(p, SharedPrefix)}

    def chain(self, prefix: str) -> dict[str, SharedPrefix]:
        """A shared prefix behind all it lies under, by name, the head of the prompt first."""
        above = self.prefixes[prefix].under
        return {**({} if above is None else self.chain(above)), prefix: self.prefixes[prefix]}

    def texts(self, prefix: str) -> float:
        """Different texts of a shared prefix: its variants times those of all it lies under."""
        return math.prod(float(one.variants) for one in self.chain(prefix).values())

    def prefixes_of(self, population: str) -> dict[str, SharedPrefix]:
        """The shared prefixes at the head of a population's prompts, by name, first to last."""
        used = [name for name, p in self.prefixes.items() if p.used_by is None or population in p.used_by]
        return max(map(self.chain, used), key=len, default={})

    @property
    def storage_tiers(self) -> dict[str, Any]:
        """Tiers below the GPUs' own memory, fast to slow."""
        return {name: tier for name, tier in self.tiers.items() if not isinstance(tier, Hbm)}

    def changed(self, **fields: Any) -> Case:
        """This case with some fields replaced, not validated again."""
        return self.model_copy(update=fields)

    def model_copy(self, **how: Any) -> Case:
        """A copy that forgets what was worked out from the fields before."""
        copy = super().model_copy(**how)
        copy.__dict__.pop("axes", None)
        return copy

    @cached_property
    def axes(self) -> int:
        """Number of study axes its numbers have."""
        return max((np.ndim(number) for number in _numbers(self) if isinstance(number, np.ndarray)), default=0)

    @property
    def arrivals(self) -> Any:
        """Sessions that start per second, all populations."""
        return sum(p.session_rate for p in self.sessions.values())


def _numbers(node: Any) -> Iterator[Any]:
    """Every number of a record, its parts and the laws in it."""
    if isinstance(node, Record):
        for name in type(node).model_fields:
            yield from _numbers(getattr(node, name))
    elif isinstance(node, Mapping):
        for part in node.values():
            yield from _numbers(part)
    elif isinstance(node, tuple):
        for part in node:
            yield from _numbers(part)
    elif isinstance(node, laws.Law | laws.Turns):
        yield from node.parameters
    else:
        yield node
