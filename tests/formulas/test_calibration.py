"""Fits recover the terms they were made with, let go of outliers, and predict points they did not see."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.analyses.evaluate_cold import family_of
from kvmodel.formulas import calibration, prefill, transfer

TOKENS = np.array([1000.0, 2000, 4000, 8000, 16000, 32000, 64000])
TRUE = dict(constant=0.03, linear=2e-5, attention=4e-10)


@given(
    constant=st.just(0.0) | st.floats(0.001, 0.5),
    linear=st.floats(1e-6, 1e-3),
    attention=st.just(0.0) | st.floats(1e-11, 1e-8),
)
@settings(max_examples=30, deadline=None)
def test_exact_points_give_back_their_terms(constant, linear, attention):
    law = dict(constant=constant, linear=linear, attention=attention)
    fitted = calibration.prefill_fit(TOKENS, TOKENS / 2, prefill.prefill_seconds(TOKENS, TOKENS / 2, **law))
    # Relative to what each term contributes somewhere among the points
    assert fitted.constant == pytest.approx(constant, rel=1e-5, abs=1e-6 * linear * 1000)
    assert fitted.linear == pytest.approx(linear, rel=1e-5)
    assert fitted.attention == pytest.approx(attention, rel=1e-5, abs=1e-6 * linear / 64000)
    np.testing.assert_allclose(fitted.fit.left_out, 0, atol=1e-6)


@pytest.mark.parametrize("cold", range(len(TOKENS)))
def test_a_cold_start_is_let_go(cold):
    seconds = prefill.prefill_seconds(TOKENS, 0.0, **TRUE) * (1 + 0.002 * np.array([1, -1, 1, 1, -1, -1, 1]))
    seconds[cold] += 3.0
    fitted = calibration.prefill_fit(TOKENS, 0.0, seconds)
    assert fitted.fit.outliers[cold] or cold == len(TOKENS) - 1  # 3 s on the longest point is close to its noise
    others = np.delete(TOKENS, cold)
    said = calibration.prefill_predicted(fitted, others, 0.0)
    np.testing.assert_allclose(said, prefill.prefill_seconds(others, 0.0, **TRUE), rtol=0.02)


def test_busy_levels_are_told_apart():
    """Points at c = 1, 2, 4 made with factors 1, 1.1, 1.3 beyond the law of simultaneous prompts."""
    n, c = np.tile(TOKENS[:5], 3), np.repeat([1.0, 2.0, 4.0], 5)
    extra = np.select([c == 2, c == 4], [1.1, 1.3], 1.0)
    waiting = calibration.concurrency_factor(c, n, 8192)
    seconds = extra * (TRUE["constant"] + waiting * (prefill.prefill_seconds(n, 0.0, **TRUE) - TRUE["constant"]))
    fitted = calibration.prefill_fit(n, 0.0, seconds, concurrency=c)
    # 1.5 %: the factors are held near one by a twentieth of a point each
    np.testing.assert_allclose(calibration.busy_factor(fitted.fit, [1, 2, 4, 8]), [1, 1.1, 1.3, 1.3], rtol=0.015)
    np.testing.assert_allclose(fitted.fit.residuals, 0, atol=0.01)


@pytest.mark.parametrize(("concurrency", "together"), [(1, 1), (4, 1), (7, 3), (8, 4), (5, 9)])
def test_concurrency_factor_counts_steps(concurrency, together):
    finish, done = [1], 1
    while done < concurrency:
        step = min(together, concurrency - done)
        done += step
        finish += [done] * step
    said = calibration.concurrency_factor(concurrency, 1000.0, 1000.0 * together)
    assert said == pytest.approx(np.mean(finish))


def test_transfer_terms_come_back():
    block = np.repeat([4096.0, 65536.0, 2**21], 3)
    nbytes = np.tile([1e7, 1e8, 1e9], 3)
    seconds = transfer.transfer_seconds(
        nbytes, latency=0.002, bandwidth=50e9, copies=nbytes / block, seconds_per_copy=3e-6
    )
    fitted = calibration.transfer_fit(nbytes, seconds, block_bytes=block)
    assert fitted.latency == pytest.approx(0.002)
    assert fitted.seconds_per_copy == pytest.approx(3e-6)
    assert fitted.bandwidth == pytest.approx(50e9)
    plain = calibration.transfer_fit(
        [1e6, 1e8, 1e9], transfer.transfer_seconds([1e6, 1e8, 1e9], latency=0.01, bandwidth=5e9)
    )
    assert (plain.seconds_per_copy, plain.bandwidth) == (0, pytest.approx(5e9))
    assert calibration.transfer_fit([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]).bandwidth == np.inf


def test_fetched_and_computed_points_are_told_apart():
    """Half the points fetch 80 % of their prompt at 10 GB/s after 20 ms, some of them four at a time."""
    n, c = np.tile(TOKENS[1:], 4), np.repeat([1.0, 1.0, 4.0, 4.0], 6)
    p = np.repeat([0.0, 0.8, 0.0, 0.8], 6) * n
    waiting = calibration.concurrency_factor(c, n - p, 8192)
    compute = TRUE["constant"] + waiting * (prefill.prefill_seconds(n, p, **TRUE) - TRUE["constant"])
    fetch = (p > 0) * transfer.transfer_seconds(1e5 * p, latency=0.02, bandwidth=10e9) * (c + 1) / 2
    fitted = calibration.restore_fit(n, p, 1e5 * p, compute + fetch, concurrency=c)
    np.testing.assert_allclose(fitted[:3], list(TRUE.values()), rtol=1e-3)
    np.testing.assert_allclose((fitted.latency, fitted.bandwidth), (0.02, 10e9), rtol=1e-3)
    whole = calibration.restore_fit(TOKENS, TOKENS, 1e5 * TOKENS, 0.03 + TOKENS * 1e5 / 20e9)
    assert (whole.latency, whole.bandwidth) == (pytest.approx(0.03), pytest.approx(20e9))


def test_few_points_fit_exactly_and_leave_nothing_to_test():
    fitted = calibration.transfer_fit([1e6, 1e9], [0.1, 0.2])
    np.testing.assert_allclose(fitted.fit.residuals, 0, atol=1e-9)
    assert np.isnan(fitted.fit.left_out).all()


def measured(reference_data, kind):
    with open(reference_data("measurements.json"), encoding="utf-8") as file:
        return [case for case in json.load(file) if case["kind"] == kind]


def in_series(cases, *facts, least=5):
    """Cases of the same source, model, GPUs and `facts` of their params, as many as a fit can be tested with."""
    groups = {}
    for case in cases:
        machine = [case[name] for name in ("source", "model", "gpu", "tp")]
        groups.setdefault((*machine, *(case["params"].get(fact) for fact in facts)), []).append(case)
    return [group for group in groups.values() if len(group) >= least]


def test_published_dense_prefill_is_predicted_by_its_other_points(reference_data):
    """Series of at least five lengths, with 1 to 8 requests at once: in the public file Llama-3.1-8B on one H100 (vLLM
    blog) and QwQ-32B on two H20. Medians of few points say little: the bars are for twenty."""
    errors = []
    dense = [c for c in measured(reference_data, "prefill") if family_of(c["model"]) == "dense"]
    numbers = [(c, (c["tokens_in"], c["measured"].get("ttft_s"), c["params"].get("concurrency"))) for c in dense]
    known = [c for c, given in numbers if all(isinstance(x, int | float) for x in given)]
    for cases in in_series([c for c in known if not c["hit_fraction"]]):
        if len({case["tokens_in"] for case in cases}) < 5:
            continue
        fitted = calibration.prefill_fit(
            [case["tokens_in"] for case in cases],
            0.0,
            [case["measured"]["ttft_s"] for case in cases],
            concurrency=[case["params"]["concurrency"] for case in cases],
        )
        errors.extend(np.abs(fitted.fit.left_out))
    assert np.all(np.isfinite(errors))
    assert len(errors) < 20 or (np.median(errors) <= 0.02 and np.quantile(errors, 0.9) <= 0.06)


def test_published_copy_sizes_follow_the_small_copy_law(reference_data):
    """In the public file the vLLM blog of 8 January 2026, figures 3-4: 1000 blocks of 4 KiB to 16 MiB, by DMA and by
    kernel, ten or more sizes each."""
    cases = [c for c in measured(reference_data, "bandwidth") if {"block_bytes", "method"} <= set(c["params"])]
    for mine in in_series([c for c in cases if c["measured"].get("bandwidth_gbps")], "direction", "method"):
        block = np.array([case["params"]["block_bytes"] for case in mine], float)
        rate = np.array([case["measured"]["bandwidth_gbps"] for case in mine]) * 1e9
        fitted = calibration.transfer_fit(1000 * block, 1000 * block / rate, block_bytes=block)
        bar = 0.06 if len(mine) >= 10 else 0.15  # fewer sizes lie further from each other
        assert np.mean(np.abs(fitted.fit.left_out)) <= bar, mine[0]["id"]
