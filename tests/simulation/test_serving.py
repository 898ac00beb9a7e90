"""Fetch or recompute and the queues: by hand, by conservation, and by Pollaczek and Khinchine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Lognormal
from kvmodel.formulas.queueing import single_server_mean_wait
from kvmodel.formulas.reuse import SessionStream, SharedPrefix
from kvmodel.simulation.serving import Path, Prefill, reusable_parts, sampled_prompts, served_turns
from kvmodel.simulation.session_cache import sampled_events
from kvmodel.simulation.tier_chain import Found

PREFILL = Prefill(constant=0.1, linear=1e-3, attention=0.0)
HERE = Path()
BELOW = Path(fixed=0.05, per_token=2e-4, device_per_token=1e-4, link_per_token=2e-4, link="host")


def serve(time, prompt, private, prefix, *, prefill=PREFILL, session=None, instance=None, paths=(HERE, BELOW), **how):
    n = len(time)
    time, prompt, parts = (np.asarray(v, float) for v in (time, prompt, [prefix, private]))
    session = np.arange(n) if session is None else np.asarray(session)
    instance = np.zeros(n, int) if instance is None else np.asarray(instance)
    return served_turns(time, session, instance, prompt, parts, prefill, paths, **how)


def test_each_part_is_fetched_if_that_is_sooner():
    """1000 tokens take 1 s to recompute and 0.05 + 0.2 s to fetch; 40 take 0.04 s against 0.058 s."""
    seen = serve([0.0, 100.0, 200.0], [2_000.0] * 3, [[0, 0, 500], [1_000, 40, 40]], [[0, 0, 0], [0, 0, 0]])
    assert np.allclose(seen.fetch, [0.25, 0.0, 0.0])
    assert np.allclose(seen.work, [1.1, 2.1, 1.6])  # what is at hand costs nothing
    assert np.allclose(seen.first_token, [1.35, 2.1, 1.6])
    assert np.allclose(seen.timely, [[0, 0, 500], [1_000, 0, 0]])


def test_a_head_is_fetched_alone_where_the_rest_is_not_worth_it():
    """Head of 1000 tokens below: worth it. Context of 1000 tokens on a path of 2 ms a token: not."""
    slow = Path(fixed=0.05, per_token=2e-3, link="slow")
    seen = serve([0.0], [2_100.0], [[0], [0], [1_000]], [[0], [1_000], [0]], paths=(HERE, BELOW, slow))
    assert np.allclose(seen.timely[:, 0], [0.0, 1_000.0, 0.0]) and seen.fetch[0] == pytest.approx(0.25)


def test_a_transfer_hides_behind_the_prefill_of_the_rest():
    """0.2 s of transfer behind 1.1 s of prefill, half of it hidden: 0.05 + 0.1 s show."""
    seen = serve([0.0], [2_000.0], [[0], [1_000]], [[0], [0]], paths=(HERE, BELOW._replace(hidden=0.5)))
    assert seen.fetch[0] == pytest.approx(0.15)


def test_fetches_wait_for_the_link_of_their_instance_and_for_the_devices_of_all():
    """Three at once, 0.2 s on the link and 0.1 s on the devices each. On one instance the second waits 0.2 s and the
    third 0.4 s. On three instances they wait for the devices alone: 0.1 and 0.2 s."""
    three = dict(time=[0.0] * 3, prompt=[2_000.0] * 3, private=[[0] * 3, [1_000] * 3], prefix=[[0] * 3] * 2)
    assert np.allclose(np.sort(serve(**three).fetch), [0.25, 0.45, 0.65])
    assert np.allclose(np.sort(serve(**three, instance=[0, 1, 2]).fetch), [0.25, 0.35, 0.45])
    own = (HERE, BELOW._replace(shared=False))
    assert np.allclose(serve(**three, instance=[0, 1, 2], paths=own).fetch, 0.25)


def test_a_queue_makes_recomputing_the_sooner_way():
    """Saved: 1 s. The fifth of five at once would take 0.05 + 5 x 0.2 s and recomputes."""
    seen = serve([0.0] * 5, [2_000.0] * 5, [[0] * 5, [1_000] * 5], [[0] * 5] * 2)
    assert sorted(seen.timely[1]) == [0.0, 1_000.0, 1_000.0, 1_000.0, 1_000.0]


def test_tokens_after_the_limit_are_used_but_not_timely():
    seen = serve([0.0], [2_000.0], [[0], [1_000]], [[0], [0]], limit=0.2)
    assert seen.timely.sum() == 0.0 and seen.work[0] == pytest.approx(1.1)


def test_no_turn_comes_before_the_one_before_it_has_its_first_token():
    """2.1 s of prefill each, a second apart: of one session the second starts when the first ends; of two it waits."""
    one = serve([0.0, 1.0], [2_000.0] * 2, [[0] * 2] * 2, [[0] * 2] * 2, session=[7, 7])
    two = serve([0.0, 1.0], [2_000.0] * 2, [[0] * 2] * 2, [[0] * 2] * 2, session=[7, 8])
    assert np.allclose(one.first_token, [2.1, 2.1]) and np.allclose(two.first_token, [2.1, 3.2])


@pytest.mark.parametrize("size", [Constant(1_000.0), Exponential(1_000.0)], ids=["constant", "exponential"])
def test_single_turns_wait_as_pollaczek_and_khinchine_say(size):
    """Utilisation 0.5 on each of two instances; the mean wait of 80,000 turns has a standard error of about 1.5 %."""
    rng = np.random.default_rng(3)
    time = np.sort(rng.uniform(0.0, 80_000.0, 80_000))
    prompt = size.sample(rng, len(time))
    nothing = np.zeros((0, len(time)))
    place = rng.integers(2, size=len(time))
    seen = serve(
        time, prompt, nothing, nothing, prefill=Prefill(0.0, 1e-3, 0.0), instance=place, paths=(), session=None
    )
    service = float(size.mean) * 1e-3
    wait = single_server_mean_wait(0.5, service, float(size.variance) / float(size.mean) ** 2)
    assert seen.first_token.mean() == pytest.approx(float(wait) + service, rel=0.04)


def test_blocks_end_what_can_be_reused():
    """40 of head and 55 of context make 95 tokens: five blocks of 16 are 80, of which 32 are the head's. A tenth of the
    room that is no text comes off the context."""
    found = Found(np.array([[40.0], [15.0]]), np.array([[[40.0], [0.0]]]), np.zeros(1))
    head, own = reusable_parts(found, np.array([55.0]), 16.0, 0.0)[..., 0]
    assert np.allclose(head, [32.0, 0.0]) and np.allclose(own, [48.0, 0.0])
    head, own = reusable_parts(found, np.array([55.0]), 1.0, 5.5)[..., 0]
    assert np.allclose(head, [40.0, 0.0]) and np.allclose(own, [36.0, 13.5])


STREAM = SessionStream(
    0.1, Lognormal(300.0, 0.5), Exponential(50.0), GeometricTurns(6.0), Exponential(40.0),
    prefix=SharedPrefix.uniform(100.0, 3),
)  # fmt: skip


def test_prompts_hold_the_head_all_that_came_before_and_the_new_tokens():
    """With outputs of 20 and 7 tokens of padding: a prompt is the context before less the padding, its new tokens and
    the head."""
    rng = np.random.default_rng(2)
    events, prompt = sampled_prompts([STREAM], [Constant(20.0)], 7.0, 2e4, rng)
    plain = sampled_events([STREAM], 2e4, np.random.default_rng(2), running=True)
    order = np.argsort(events[2], kind="stable")
    same = np.diff(events[2][order]) == 0
    before = np.where(np.concatenate([[False], same]), np.roll(events[3][order] - 7.0, 1), 0.0)
    new = np.diff(plain[3][order], prepend=0.0)
    new = np.where(np.concatenate([[False], same]), new, plain[3][order])
    assert np.allclose(prompt[order], before + new + 100.0)
    assert np.allclose(events[3] - 7.0, prompt - 100.0 + 20.0)


def test_sessions_that_run_at_time_zero_are_those_of_the_steady_state():
    """Rate x mean length of a session: 0.1/s x 5 pauses of 40 s = 20 run at any time (Little); at time zero too."""
    seen = []
    for seed in range(60):
        events = sampled_events([replace(STREAM, prefix=None)], 200.0, np.random.default_rng(seed), running=True)
        seen.append(len(np.unique(events[2][events[0] < 0.0])))
    assert np.mean(seen) == pytest.approx(20.0, abs=4 * np.sqrt(20.0 / 60))
