"""Fetch or recompute, in time: what of the tokens found is used, and how long every turn waits for its first token.

Every turn is offered the tokens found (`tier_chain`), heads first, then its context, each tier by tier. It fetches
them up to the point where fetch time minus prefill saved is least, nothing if recomputing is sooner, counting the jobs
that are on each path right now. A tier's devices serve all instances and a link one instance, first come first
served; then the instance's GPUs prefill what is left, first come first served. Fetching does not occupy the GPU, and
decoding takes only what prefill leaves of it.

The loop is not closed: turns come at the times they were sampled, so serving time is part of the pauses, as in the
closed forms, and a slow system does not slow its users down. But no turn comes before the one before it has its first
token: it comes right then, and waits from then on.
"""

from __future__ import annotations

import heapq
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
    its wait, prefill left, and time to first token [s]."""

    timely: Array
    fetch: Array
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
    """Events as of `session_cache.sampled_events`, running sessions included, and prompt tokens of every turn, those of
    the head too.

    streams: `first` and `step` are prompt tokens. outputs: law of the tokens a turn of each stream generates, which
    stay in the context. extra: tokens of room a session takes beside (states, padding).
    """
    events = sampled_events(streams, horizon, rng, rates, running=True)
    stream, key = events[1].astype(int), events[2]
    length = np.array([float(s.head_tokens) for s in streams])
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


def reusable_parts(found: Found, private: Array, granularity: float, extra: float) -> Array:
    """Tokens that can be reused of each head, first to last, and of the context, by tier, (parts, tiers, turns): what
    is found, less the `extra` that is no text, ends at a whole block of `granularity` tokens."""
    text = 1.0 - extra / np.maximum(private, max(extra, 1e-300))
    parts = np.concatenate([found.heads, (found.private * text)[None]])
    upto = np.cumsum(parts.reshape(-1, parts.shape[-1]), axis=0)
    if granularity > 1.0:
        upto = np.floor(upto / granularity + 1e-9) * granularity
    return np.diff(upto, axis=0, prepend=0.0).reshape(parts.shape)


def served_turns(
    time: Array,
    session: Array,
    instance: Array,
    prompt: Array,
    parts: Array,
    prefill: Prefill,
    paths: Sequence[Path],
    limit: float = np.inf,
) -> Served:
    """Serve turns that come in this order. time [s], session, instance, prompt [tokens], shape (turns,); parts: what
    can be reused of the heads and the context, by tier, (parts, tiers, turns) [tokens]; one path per tier.

    limit: tokens whose fetch takes longer are not timely, whatever they save [s].
    """
    fetches = _Fetches(prefill, paths, prompt, parts)
    gpu: dict[int, float] = defaultdict(float)  # when it is free, by instance
    before, after = (turn.tolist() for turn in _neighbours_in(session))
    come, place = time.tolist(), instance.tolist()
    fetch, work, first_token = ([0.0] * len(come) for _ in range(3))
    taken: list[list[float]] = [[]] * len(come)
    # what happens next: a turn comes, or its tokens are there and it waits for the GPU
    agenda = [(come[i], i, False) for i in range(len(come)) if before[i] < 0]
    heapq.heapify(agenda)
    while agenda:
        now, i, ready = heapq.heappop(agenda)
        if not ready:
            come[i] = now
            fetch[i], work[i], taken[i] = fetches.chosen(i, now, place[i])
            heapq.heappush(agenda, (now + fetch[i], i, True))
        else:
            gpu[place[i]] = end = max(gpu[place[i]], now) + work[i]
            first_token[i] = end - come[i]
            if after[i] >= 0:
                heapq.heappush(agenda, (max(come[after[i]], end), after[i], False))
    spent = np.array(fetch)
    timely = np.where(spent <= limit, np.array(taken).reshape(len(come), len(paths)).T, 0.0)
    return Served(timely, spent, np.array(work), np.array(first_token))


class _Fetches:
    """The queues of all paths, and what each turn takes from them."""

    def __init__(self, prefill: Prefill, paths: Sequence[Path], prompt: Array, parts: Array):
        self.prefill, self.paths = prefill, paths
        self.whole = (prefill.constant + prefill.linear * prompt + prefill.attention * prompt**2).tolist()
        self.parts = np.moveaxis(parts, -1, 0).tolist()
        self.device: dict[tuple[int, int], float] = defaultdict(float)  # when it is free, by tier and instance
        self.link: dict[tuple[str, int], float] = defaultdict(float)

    def chosen(self, i: int, now: float, place: int) -> tuple[float, float, list[float]]:
        """Fetch time with its waits, prefill left [s], and tokens taken from each tier; the queues grow by them."""
        whole, paths = self.whole[i], self.paths
        queues = [((k, -1 if path.shared else place), (path.link, place)) for k, path in enumerate(paths)]
        waits = [max(self.device[d] - now, self.link[l] - now, 0.0) for d, l in queues]
        upto, taken = [0.0] * len(paths), [0.0] * len(paths)
        spent, saved, cached = 0.0, 0.0, 0.0
        for k, more in ((k, more) for part in self.parts[i] for k, more in enumerate(part) if more):
            upto[k] += more
            cached += more
            saves = self.prefill.linear * cached + self.prefill.attention * cached**2
            takes = sum(
                path.fixed + wait + path.per_token * n - path.hidden * min(path.per_token * n, whole - saves)
                for path, wait, n in zip(paths, waits, upto, strict=True)
                if n and not path.free
            )
            if takes - saves < spent - saved:
                spent, saved, taken = takes, saves, upto.copy()
        for path, (d, l), n in zip(paths, queues, taken, strict=True):
            if n and not path.free:
                self.device[d] = max(self.device[d], now) + path.device_fixed + path.device_per_token * n
                self.link[l] = max(self.link[l], now) + path.link_fixed + path.link_per_token * n
        return spent, whole - saved, taken


def _neighbours_in(session: Array) -> tuple[Array, Array]:
    """Turn of the same session before and after each, -1 without one."""
    order = np.argsort(session, kind="stable")
    earlier, later = order[:-1], order[1:]
    same = session[earlier] == session[later]
    before, after = np.full(len(session), -1), np.full(len(session), -1)
    before[later[same]], after[earlier[same]] = earlier[same], later[same]
    return before, after
