"""The session simulator against a naive list, and its own statistics."""

from __future__ import annotations

import numpy as np
import pytest

from kvmodel.formulas.laws import Constant, Exponential, FixedTurns, GeometricTurns, Lognormal
from kvmodel.formulas.working_set import SessionStream, SharedPrefix
from kvmodel.simulation import session_cache

HEADS = SharedPrefix.zipf(50.0, 5, 1.0)
STREAMS = [
    SessionStream(0.05, Lognormal(100.0, 0.5), Exponential(20.0), GeometricTurns(4.0), Exponential(30.0), prefix=HEADS),
    SessionStream(0.05, Constant(30.0), Constant(10.0), FixedTurns(3), Constant(20.0)),
]


def naive(events, tokens, touch):
    """Stack as a list of [owner, tokens], most recent first; what lies over an entry is a plain sum."""
    stack, rows = [], []
    for now, stream, key, size, head in events.T:
        del now
        owners = [(("session", key), size)] + ([(("head", head), tokens[int(stream)])] if head >= 0 else [])
        over = {}
        for owner, _ in owners:
            places = [i for i, entry in enumerate(stack) if entry[0] == owner]
            over[owner] = (sum(e[1] for e in stack[: places[0]]), stack[places[0]][1]) if places else (np.inf, 0.0)
        rows.append([over[owner] for owner, _ in owners])
        stack = [entry for entry in stack if entry[0] not in over]
        for owner, amount in owners if touch == "reverse" else owners[::-1]:
            stack.insert(0, (owner, amount))
    return rows


@pytest.mark.parametrize("touch", ["reverse", "forward"])
def test_stack_equals_a_naive_list(touch):
    horizon = 600.0
    log = session_cache.simulate_sessions(STREAMS, horizon, seed=5, touch=touch, warm_up=0.0)
    events = session_cache.sampled_events(STREAMS, horizon, np.random.default_rng(5))
    rows = naive(events, [50.0, 0.0], touch)
    assert len(rows) == len(log.stream) > 100
    for row, size, above, over, head in zip(rows, log.private, log.above, log.over[0], events[4], strict=True):
        assert size == pytest.approx(row[0][1])
        if head >= 0:
            assert over == pytest.approx(row[1][0], abs=1e-6)
        if touch == "reverse" or head < 0:
            assert above == pytest.approx(row[0][0], abs=1e-6)
        else:  # a context behind a lost head is lost
            assert above == pytest.approx(max(row[0][0], row[1][0] + 50.0 - row[0][1]), abs=1e-6)


def test_the_same_seed_gives_the_same_log():
    one, two = (session_cache.simulate_sessions(STREAMS, 2_000.0, seed=1) for _ in range(2))
    other = session_cache.simulate_sessions(STREAMS, 2_000.0, seed=2)
    assert np.array_equal(one.above, two.above) and not np.array_equal(one.above[:50], other.above[:50])


def test_retention_drops_contexts():
    """Constant pauses of 20 s: all found if contexts are kept for 21 s, none if for 19 s."""
    for kept, found in ((21.0, 1.0), (19.0, 0.0)):
        stream = SessionStream(0.05, Constant(30.0), Constant(10.0), FixedTurns(3), Constant(20.0), retention=kept)
        log = session_cache.simulate_sessions([stream], 5_000.0, seed=3)
        assert session_cache.hit_ratio(log, 1e9).private[0] == found


def test_more_capacity_never_finds_less_and_everything_fits():
    log = session_cache.simulate_sessions(STREAMS, 20_000.0, seed=4)
    seen = session_cache.hit_ratio(log, np.array([0.0, 100.0, 1e3, 1e4, np.inf]))
    assert np.all(np.diff(seen.private) >= 0.0) and np.all(np.diff(seen.prefix) >= 0.0)
    assert seen.private[0] == pytest.approx(0.0, abs=1e-12) and seen.private[-1] == 1.0


def test_standard_error_covers_the_spread_of_independent_runs():
    """The stated error of one run against the spread over eight seeds, within a factor of two."""
    runs = [
        session_cache.hit_ratio(session_cache.simulate_sessions(STREAMS, 15_000.0, seed=s), 2_000.0) for s in range(8)
    ]
    spread = np.std([r.private[0] for r in runs], ddof=1)
    stated = np.mean([r.private_error[0] for r in runs])
    assert 0.5 < stated / spread < 2.0
