"""The session simulator against a naive list, and its own statistics."""

from __future__ import annotations

from dataclasses import replace

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


DOCUMENTS = SharedPrefix.zipf(70.0, 3, 0.5, under=SharedPrefix.uniform(20.0, 2, under=HEADS))
NESTED = [replace(STREAMS[0], prefix=DOCUMENTS), STREAMS[0], STREAMS[1]]


def naive(streams, events, touch):
    """Stack as a list of [owner, tokens], most recent first; what lies over an entry is a plain sum."""
    stack, rows = [], []
    for _, stream, key, size, *heads in events.T:
        chain = [("head", head) for head in heads if head >= 0]
        owners = [(("session", key), size)]
        owners += [(o, float(h.tokens)) for o, h in zip(chain, streams[int(stream)].heads, strict=True)][::-1]
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
@pytest.mark.parametrize("streams", [STREAMS, NESTED], ids=["one level", "three levels"])
def test_stack_equals_a_naive_list(streams, touch):
    horizon = 600.0
    log = session_cache.simulate_sessions(streams, horizon, seed=5, touch=touch, warm_up=0.0)
    events = session_cache.sampled_events(streams, horizon, np.random.default_rng(5))
    rows = naive(streams, events, touch)
    assert len(rows) == len(log.stream) > 100
    for n, ((own, *heads), stream) in enumerate(zip(rows, log.stream, strict=True)):
        needed = 0.0  # in forward order what is behind a lost head is lost
        for level, ((over, _), head) in enumerate(zip(heads[::-1], streams[int(stream)].heads, strict=True)):
            assert log.prefix[level, n] == head.tokens
            assert log.over[level, n] == pytest.approx(max(over, needed - head.tokens), abs=1e-6)
            needed = log.over[level, n] + head.tokens if touch == "forward" else 0.0
        assert log.private[n] == pytest.approx(own[1])
        assert log.above[n] == pytest.approx(max(own[0], needed - own[1]), abs=1e-6)
    assert np.all(log.prefix[[len(s.heads) for s in streams][1] :, log.stream == 1] == 0.0)


def test_in_reverse_order_a_head_lies_over_all_that_is_behind_it():
    """So what is found is always the beginning of a prompt, with nothing done about it."""
    log = session_cache.simulate_sessions(NESTED, 5_000.0, seed=6)
    for front, back in zip(log.over[:-1, log.stream == 0], log.over[1:, log.stream == 0], strict=True):
        assert np.all(front <= back + 1e-6)
    parts = [session_cache.hit_ratio(log, [300.0, 1_000.0], stream=0, level=k).prefix for k in range(3)]
    total = session_cache.hit_ratio(log, [300.0, 1_000.0], stream=0).prefix
    assert np.allclose(total, np.tensordot([50.0, 20.0, 70.0], parts, 1) / 140.0)
    assert np.all(np.diff(parts, axis=0) <= 0.0)


def test_rows_of_the_events_end_with_the_heads():
    one, three = (session_cache.sampled_events(s, 2e4, np.random.default_rng(5)) for s in (STREAMS, NESTED))
    assert len(one) == 5 and len(three) == 7
    assert np.all(one[4, one[1] == 1] == -1) and np.all(three[5:, three[1] == 1] == -1)
    deep = three[4:, three[1] == 0]
    assert len(np.unique(deep[0])) == 5 and len(np.unique(deep[2])) == 30
    assert len(np.unique(deep, axis=1).T) == 30  # each document behind one chain only


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


def test_ratios_of_short_logs():
    """Three values make three spans: 6 / 12, and no value is counted twice; one value has no spread."""
    ratio, error = session_cache.ratio_of_sums(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    assert ratio == 0.5 and error == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(session_cache.ratio_of_sums(np.zeros((2, 1)), np.ones(1))).all()


def test_agents_do_not_go_in_step():
    """200 agents, sessions of ten turns ten seconds apart: in any ten seconds 20 of them make their first turn, 20 the
    second, ... (binomial: 4.2 standard deviations are 18)."""
    stream = SessionStream.of_agents(200, Constant(1.0), Constant(1.0), FixedTurns(10), Constant(10.0))
    events = session_cache.sampled_events([stream], 400.0, np.random.default_rng(1))
    sizes = events[3, (events[0] >= 300.0) & (events[0] < 310.0)]
    assert len(sizes) == 200 and np.all(np.abs(np.bincount(sizes.astype(int), minlength=11)[1:] - 20) < 18)
