"""What the workload asks for: turns per second, prompt tokens, and how much of them was computed before.

Question answered: how much reuse does the workload offer, before any capacity or clock is looked at?
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kvmodel.formulas import laws
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions
from kvmodel.workloads.shared_prefix import SharedPrefix

# Classes of unequal probability: the tail of a message law decides the tail of the latency.
SIZE_SHARES = (0.3, 0.3, 0.2, 0.12, 0.06, 0.02)


@dataclass(frozen=True)
class Traffic:
    """One population of sessions in numbers. Tokens are per session unless said otherwise."""

    name: str
    sessions: Sessions
    prefixes: Mapping[str, SharedPrefix]
    """The shared prefixes at the head of its prompts, by name, first to last."""
    granularity: Any
    """Tokens between two points where a cached prefix can end (blocks, state checkpoints)."""

    @cached_property
    def arrivals(self) -> Any:
        """Sessions that start per second, averaged over time [1/s]."""
        return self.sessions.session_rate

    @cached_property
    def returns(self) -> Any:
        """Turns of a session that find an earlier context, E[K] - 1."""
        return self.sessions.turns_law.factorial_moments[0]

    @cached_property
    def returning(self) -> Any:
        """Probability that a session whose context is left waiting comes back; one that is deleted leaves none."""
        return self.returns / np.maximum(self.returns + 1 - np.asarray(self.sessions.deleted, float), 1e-300)

    @cached_property
    def turn_rate(self) -> Any:
        """Turns per second [1/s]."""
        return self.arrivals * (1 + self.returns)

    @cached_property
    def prefix_tokens(self) -> Any:
        """Length of all shared prefixes at the head of every prompt [tokens]."""
        return sum((np.asarray(prefix.tokens, float) for prefix in self.prefixes.values()), np.zeros(()))

    @cached_property
    def reusable_heads(self) -> tuple[Any, ...]:
        """Tokens of each shared prefix that whole blocks cover, first to last; a block over the border of two belongs
        to the later one [tokens]."""
        ends = list(itertools.accumulate(np.asarray(prefix.tokens, float) for prefix in self.prefixes.values()))
        covered = [reusable(end, self.granularity) for end in ends]
        return tuple(upto - before for before, upto in itertools.pairwise([np.zeros(()), *covered]))

    @cached_property
    def first(self) -> laws.Law:
        """Private context after the first turn: own prompt and output [tokens]."""
        return laws.Sum((self.sessions.first_tokens, self.sessions.output_tokens))

    @cached_property
    def step(self) -> laws.Law:
        """Private context each later turn adds [tokens]."""
        return laws.Sum((self.sessions.new_tokens, self.sessions.output_tokens))

    @cached_property
    def steps_before_return(self) -> tuple[Any, Any]:
        """Mean and variance of the number of later turns already behind a returning turn.

        Over all returns of a session with J returns the number runs 0, 1, ..., J-1, so with factorial moments m1,
        m2, m3 of J: E j = m2/(2 m1), E j^2 = m3/(3 m1) + m2/(2 m1).
        """
        m1, m2, m3 = self.sessions.turns_law.factorial_moments
        some = np.maximum(m1, 1e-300)
        mean = m2 / (2 * some)
        return mean, np.maximum(m3 / (3 * some) + mean - mean**2, 0.0)

    @cached_property
    def context(self) -> laws.Law:
        """Private context found by a returning turn [tokens]: gamma of the exact mean and variance."""
        mean_j, var_j = self.steps_before_return
        mean = self.first.mean + mean_j * self.step.mean
        variance = self.first.variance + mean_j * self.step.variance + var_j * self.step.mean**2
        return gamma_of(mean, variance)

    @cached_property
    def private_opportunity(self) -> Any:
        """Private tokens of a session's prompts that were computed before."""
        return self.returns * reusable(self.context.mean, self.granularity)

    @cached_property
    def head_opportunities(self) -> tuple[Any, ...]:
        """Tokens of each shared prefix in a session's prompts, first to last; computed before by someone who may share
        them."""
        return tuple((1 + self.returns) * tokens for tokens in self.reusable_heads)

    @cached_property
    def prompt_tokens(self) -> Any:
        """Prompt tokens of a session, all turns together."""
        s = self.sessions
        own = s.first_tokens.mean + self.returns * (self.context.mean + s.new_tokens.mean)
        return own + (1 + self.returns) * self.prefix_tokens

    @cached_property
    def computed_tokens(self) -> Any:
        """Tokens of KV a session creates that no one had before: its prompts' new parts and its outputs."""
        return self.first.mean + self.returns * self.step.mean

    @cached_property
    def reused_again(self) -> Any:
        """Share of returning context that had already been read back at least once before.

        What the turn just before created has not: the share is 1 - E[created before a return] / E[context].
        """
        some = np.maximum(self.returns, 1e-300)
        first_returns = self.sessions.turns_law.survival(1)
        created = first_returns * self.first.mean + (some - first_returns) * self.step.mean
        return np.clip(1 - created / (some * np.maximum(self.context.mean, 1e-300)), 0.0, 1.0)


def gamma_of(mean: Any, variance: Any) -> laws.Gamma:
    """Gamma law of a mean and a variance; floors keep it defined when all sizes are constant, or zero."""
    mean = np.maximum(mean, 1e-6)
    variance = np.maximum(variance, 1e-8 * mean**2)
    return laws.Gamma(mean**2 / variance, variance / mean)


def reusable(tokens: Any, granularity: Any) -> Any:
    """Tokens of a prefix that whole blocks cover, on average: n - g/2 beyond one block, at least 0 [tokens]."""
    n, g = np.asarray(tokens, float), np.asarray(granularity, float)
    return np.maximum(n - np.where(g > 1, np.minimum(g / 2, n), 0.0), 0.0)


def size_classes(law: laws.Law) -> tuple[np.ndarray, np.ndarray]:
    """Values (classes,)+A and shares (classes,) of a law, cut at unequal probabilities; the mean is kept exactly."""
    shares = np.array(SIZE_SHARES)
    middle = np.cumsum(shares) - shares / 2
    shape = (len(shares),) + (1,) * len(law.shape)
    values = law.quantile(middle.reshape(shape)) + np.zeros(law.shape)
    inner = np.tensordot(shares[:-1], values[:-1], 1)
    last = np.maximum((law.mean - inner) / shares[-1], values[-2])
    values = np.concatenate([values[:-1], last[None]])
    return values * law.mean / np.maximum(np.tensordot(shares, values, 1), 1e-300), shares


def typical_turn(traffic: Sequence[Traffic]) -> tuple[Any, Any]:
    """Prefix found and tokens added by the mean returning turn over all populations [tokens]."""
    returning = [t.turn_rate * t.returns / (1 + t.returns) for t in traffic]
    some = np.maximum(sum(returning), 1e-300)
    prefix = sum(r * (t.context.mean + t.prefix_tokens) for r, t in zip(returning, traffic, strict=True)) / some
    return prefix, sum(r * t.sessions.new_tokens.mean for r, t in zip(returning, traffic, strict=True)) / some


def traffic_of(case: Case, granularity: Any) -> list[Traffic]:
    """The populations of sessions of a case."""
    return [Traffic(name, sessions, case.prefixes_of(name), granularity) for name, sessions in case.sessions.items()]
