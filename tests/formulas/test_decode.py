"""Decode step and the mean number of sequences in it: algebra, simulation of routing, fixed points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import decode

STEP = dict(  # Llama-3.1-70B bf16 on 8 GPUs of 3.35 TB/s and 989 TFLOP/s at 0.8 and 0.6
    weight_bytes=141e9,
    kv_bytes_per_token=327680,
    bandwidth=8 * 3.35e12 * 0.8,
    active_parameters=70.6e9,
    flops=8 * 989e12 * 0.6,
)


def test_experts_touched_against_drawn_routing():
    rng = np.random.default_rng(3)
    experts, each, tokens, runs = 32, 4, 9, 2000
    keys = rng.random((runs, tokens, experts))
    chosen = keys.argsort(axis=2)[:, :, :each].reshape(runs, -1)
    seen = np.array([len(np.unique(row)) for row in chosen])
    said = decode.experts_touched(tokens, experts=experts, experts_per_token=each)
    assert said == pytest.approx(seen.mean(), abs=4 * seen.std() / np.sqrt(runs))


def test_experts_touched_at_the_ends():
    said = decode.experts_touched([0, 1, 1e9], experts=128, experts_per_token=8)
    np.testing.assert_allclose(said, [0, 8, 128])
    assert decode.experts_touched([0, 1], experts=4, experts_per_token=4).tolist() == [0, 4]
    dense = decode.weight_bytes_read(5, shared_bytes=10.0, expert_bytes=0.0, experts=1, experts_per_token=1)
    assert dense == 10


def test_streaming_is_not_pause_and_resume():
    """Each token pays the slow link again: n tokens cost n reads, a resume costs one."""
    local, read = 0.02, 2e9 / 50e9
    streamed = decode.streamed_step_seconds(
        local, lower_tier_bytes=2e9, bandwidth=50e9, hidden_fraction=np.array([0, 1])
    )
    np.testing.assert_allclose(streamed, [local + read, max(local, read)])
    assert decode.streamed_step_seconds(local, lower_tier_bytes=0.0, bandwidth=50e9) == local


def test_launch_floor_and_limits():
    assert decode.step_seconds(1, 0, **dict(STEP, weight_bytes=0.0), launch_floor=0.004) == 0.004
    assert decode.step_seconds(0, 4096, **STEP) == pytest.approx(STEP["weight_bytes"] / STEP["bandwidth"])
    huge = decode.step_seconds(1e9, 4096, **STEP) / 1e9
    assert huge == pytest.approx(decode.step_lines(4096, **STEP)[1].max())
    fits = decode.largest_batch(kv_space=[-1.0, 9.0, 10.0], context_tokens=5, kv_bytes_per_token=1.0)
    assert fits.tolist() == [0, 1, 2]


@given(rate=st.floats(0, 3e4), context=st.floats(100, 1e5))
def test_concurrency_is_the_fixed_point(rate, context):
    lines = decode.step_lines(context, **STEP, launch_floor=0.005)
    batch, served = decode.mean_concurrency(rate, *lines)
    if not served:
        assert batch == np.inf and rate * lines[1].max() >= 1
        return
    assert batch == pytest.approx(rate * decode.step_seconds(batch, context, **STEP, launch_floor=0.005), abs=1e-9)
    step = lambda b: decode.step_seconds(b, context, **STEP, launch_floor=0.005)  # noqa: E731
    searched = decode.concurrency_by_bisection(rate, step, largest=2 * batch + 1)
    assert searched.sequences == pytest.approx(batch, abs=1e-6 * (batch + 1)) and searched.served


def test_concurrency_at_its_limits():
    none = decode.mean_concurrency(0.0, *decode.step_lines(4096, **STEP))
    assert none.sequences == 0 and none.served
    step = lambda b: 0.01 + 0 * b  # noqa: E731
    full = decode.concurrency_by_bisection(1000.0, step, largest=np.array([5.0, 20.0]))
    assert full.served.tolist() == [False, True] and full.sequences[0] == np.inf
    assert full.sequences[1] == pytest.approx(10)


def test_arrays_equal_scalars():
    batch, context = np.array([[1.0], [64.0]]), np.array([100.0, 4096.0, 1e5])
    whole = decode.step_seconds(batch, context, **STEP)
    rates = np.array([[100.0], [5000.0]])
    many = decode.mean_concurrency(rates, *decode.step_lines(np.broadcast_to(context, (2, 3)), **STEP))
    for (r, c), value in np.ndenumerate(whole):
        assert value == decode.step_seconds(batch[r, 0], context[c], **STEP)
        one = decode.mean_concurrency(rates[r, 0], *decode.step_lines(context[c], **STEP))
        assert (many.sequences[r, c], many.served[r, c]) == one
