"""Fetch or recompute, in time: what of the tokens found is used, and how long every turn waits for its first token.

Every turn is offered the tokens found (`tier_chain`), head first, then its context tier by tier. It fetches them up to
the point where fetch time minus prefill saved is least, nothing if recomputing is sooner, counting the jobs that are
on each path right now. A tier's devices serve all instances and a link one instance, first come first served; then
the instance's GPUs prefill what is left, first come first served. Fetching does not occupy the GPU, and decoding takes
only what prefill leaves of it.

The loop is not closed: the next turn of a session comes a pause after the turn came, whatever the turn took. Serving
time is part of the pause, as in the closed forms, so a slow system does not slow its users down here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvmodel.formulas.laws import Law
from kvmodel.formulas.reuse import SessionStream
from kvmodel.simulation.session_cache import Rates, sampled_events
from kvmodel.simulation.tier_chain import Found

__all__ = ["Path", "Prefill", "Served", "reusable_parts", "sampled_prompts", "served_turns"]

Array = NDArray[Any]


class Prefill(NamedTuple):
    """constant + linear (n - p) + attention (n^2 - p^2) of one instance [s]."""

    constant: float
    linear: float
    attention: float


class Path(NamedTuple):
    """Way of one tier to an instance; of the GPUs' own memory all is zero.

    fixed + per_token p to fetch p tokens alone on the path [s], [s/token]; hidden: share of the transfer hidden behind
    prefill. device_*, link_*: how long the fetch keeps the tier's devices and the link busy [s], [s/token]. shared: the
    devices serve all instances. link: fetches of an instance over the same link wait for each other.
    """

    fixed: float = 0.0
    per_token: float = 0.0
    hidden: float = 0.0
    device_fixed: float = 0.0
    device_per_token: float = 0.0
    link_fixed: float = 0.0
    link_per_token: float = 0.0
    shared: bool = True
    link: str = ""

    @property
    def free(self) -> bool:
        """Nothing to fetch: the KV is where it is used."""
        return self.fixed == self.per_token == 0.0


@dataclass(frozen=True)
class Served:
    """Per turn, shape (turns,): tokens used in time by the tier they come from (tiers, turns), seconds of fetching with
    its wait, the wait alone, prefill left, and time to first token [s]."""

    timely: Array
    fetch: Array
    wait: Array
    work: Array
    first_token: Array


def sampled_prompts(
    streams: Sequence[SessionStream],
    outputs: Sequence[Law],
    extra: float,
    horizon: float,
    rng: np.random.Generator,
    rates: Rates | Sequence[Rates | None] | None = None,
) -> tuple[Array, Array]:
    """Events as of `session_cache.sampled_events`, and prompt tokens of every turn, the head included.

    streams: `first` and `step` are prompt tokens. outputs: law of the tokens a turn of each stream generates, which
    stay in the context. extra: tokens of room a session takes beside (states, padding).
    """
    events = sampled_events(streams, horizon, rng, rates)
    stream, key = events[1].astype(int), events[2]
    length = np.array([0.0 if s.prefix is None else float(s.prefix.tokens) for s in streams])
    generated = np.zeros(len(key))
    for index, law in enumerate(outputs):
        mine = stream == index
        generated[mine] = law.sample(rng, int(mine.sum()))
    order = np.argsort(key, kind="stable")
    total = np.cumsum(generated[order])
    session = np.unique(key[order], return_index=True, return_inverse=True)
    so_far = np.empty(len(key))
    so_far[order] = total - (total - generated[order])[session[1]][session[2]]
    prompt = events[3] + so_far - generated + length[stream]
    events[3] += so_far + extra
    return events, prompt


def reusable_parts(found: Found, private: Array, granularity: float, extra: float) -> tuple[Array, Array]:
    """Tokens that can be reused of the context and of the head by tier, (tiers, turns): what found, less the `extra`
    that is no text, ends at a whole block of `granularity` tokens."""
    text = 1.0 - extra / np.maximum(private, max(extra, 1e-300))
    upto = np.cumsum(np.concatenate([found.prefix, found.private * text]), axis=0)
    if granularity > 1.0:
        upto = np.floor(upto / granularity + 1e-9) * granularity
    parts = np.diff(upto, axis=0, prepend=0.0)
    return parts[len(found.prefix) :], parts[: len(found.prefix)]


def served_turns(
    time: Array,
    instance: Array,
    prompt: Array,
    private: Array,
    prefix: Array,
    prefill: Prefill,
    paths: Sequence[Path],
    limit: float = np.inf,
) -> Served:
    """Serve the turns in time order. time [s], instance, prompt [tokens], shape (turns,); private, prefix: reusable
    tokens by tier, (tiers, turns); one path per tier.

    limit: tokens whose fetch takes longer are not timely, whatever they save [s].
    """
    whole = prefill.constant + prefill.linear * prompt + prefill.attention * prompt**2
    tiers = range(len(paths))
    device: dict[tuple[int, int], float] = defaultdict(float)  # when it is free, by tier and instance
    link: dict[tuple[str, int], float] = defaultdict(float)
    rows = []
    for now, place, alone, own, head in zip(
        *(column.tolist() for column in (time, instance, whole, private.T, prefix.T)), strict=True
    ):
        queues = [((k, -1 if path.shared else place), (path.link, place)) for k, path in enumerate(paths)]
        waits = [max(device[d] - now, link[l] - now, 0.0) for d, l in queues]
        spent, saved, taken = 0.0, 0.0, [0.0] * len(paths)
        parts, cached = taken, 0.0
        for more in (head, *([own[j] if j == k else 0.0 for j in tiers] for k in tiers)):
            if not any(more):
                continue
            parts = [a + b for a, b in zip(parts, more, strict=True)]
            cached += sum(more)
            saves = prefill.linear * cached + prefill.attention * cached**2
            takes = sum(
                path.fixed + wait + path.per_token * n - path.hidden * min(path.per_token * n, alone - saves)
                for path, wait, n in zip(paths, waits, parts, strict=True)
                if n and not path.free
            )
            if takes - saves < spent - saved:
                spent, saved, taken = takes, saves, parts
        waited = 0.0
        for path, wait, (d, l), n in zip(paths, waits, queues, taken, strict=True):
            if n and not path.free:
                waited += wait
                device[d] = max(device[d], now) + path.device_fixed + path.device_per_token * n
                link[l] = max(link[l], now) + path.link_fixed + path.link_per_token * n
        rows.append((spent, waited, alone - saved, *(taken if spent <= limit else [0.0] * len(paths))))
    fetch, wait, work, *timely = np.array(rows).reshape(len(rows), 3 + len(paths)).T
    ends = np.empty(len(time))
    for place in np.unique(instance):
        here = instance == place
        ends[here] = _first_come_first_served((time + fetch)[here], work[here])
    return Served(np.array(timely).reshape(len(paths), len(time)), fetch, wait, work, ends - time)


def _first_come_first_served(ready: Array, work: Array) -> Array:
    """When each job ends on one server: the largest, over the jobs that came before it, of when that one came plus all
    work from there on (Lindley)."""
    order = np.argsort(ready, kind="stable")
    done = np.cumsum(work[order])
    ends = np.empty(len(ready))
    ends[order] = done + np.maximum.accumulate(ready[order] - done + work[order])
    return ends
