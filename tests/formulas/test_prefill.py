"""Prefill law: algebra, limits and one published series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import prefill

TOKENS = st.floats(1, 1e6)
SHARES = st.floats(0, 1)
TERMS = st.fixed_dictionaries(
    {"constant": st.floats(0, 1), "linear": st.floats(0, 1e-3), "attention": st.floats(0, 1e-8)}
)


def test_by_hand():
    assert prefill.prefill_seconds(10, 4, constant=1.0, linear=0.5, attention=0.01) == pytest.approx(1 + 3 + 0.84)


def test_share_of_work_saved():
    """method.md section 2.2: at 80 % token hits on a 32K prompt about three quarters of the work is saved.

    Llama-3.1-70B: 70.6e9 parameters, 80 layers of width 8192.
    """
    work = prefill.prefill_flops(32768, [0, 0.8 * 32768], active_parameters=70.6e9, attention_width=80 * 2 * 8192)
    assert 1 - work[1] / work[0] == pytest.approx(0.75, abs=0.025)


def test_attention_rate_against_a_kernel_benchmark_count():
    """A public benchmark counts 2,199,023,255,552 FLOP for 16,384 causal tokens, 32 heads of 128.

    One layer (ai-dynamo/aiconfigurator, systems data for H100 SXM, vLLM 0.24 attention).
    """
    rate = prefill.attention_seconds_per_token_squared(32 * (128 + 128), 1.0, 1.0)
    assert rate * 16384**2 == 2_199_023_255_552


@given(n=TOKENS, share=SHARES, terms=TERMS)
def test_cached_part_plus_saving_is_the_whole(n, share, terms):
    whole, rest = (prefill.prefill_seconds(n, p, **terms) for p in (0, share * n))
    saved = prefill.saved_seconds(share * n, linear=terms["linear"], attention=terms["attention"])
    assert rest + saved == pytest.approx(whole)
    assert terms["constant"] * (1 - 1e-12) <= rest <= whole * (1 + 1e-12)


@given(n=TOKENS, share=SHARES, terms=TERMS, window=st.floats(1, 1e5), rate=st.floats(0, 1e-8))
def test_window_terms(n, share, terms, window, rate):
    p = share * n
    windowed = lambda w: prefill.windowed_prefill_seconds(  # noqa: E731
        n, p, **terms, windowed_attention=np.array([rate]), window=np.array([w])
    )
    full = dict(terms, attention=terms["attention"] + rate)
    assert windowed(np.inf) == pytest.approx(prefill.prefill_seconds(n, p, **full))
    assert windowed(0.0) == pytest.approx(prefill.prefill_seconds(n, p, **terms))
    assert windowed(window) <= windowed(np.inf) * (1 + 1e-9)


@pytest.mark.parametrize(("tokens", "window"), [(7, 3), (3, 7), (1000, 128)])
def test_pairs_count_what_each_query_sees(tokens, window):
    seen = 2 * sum(min(i, window) for i in range(1, tokens + 1))
    # The closed form drops the boundary, at most one pair per token
    assert prefill.attention_pairs(tokens, window) == pytest.approx(seen, abs=tokens)


@given(n=st.integers(1, 100_000), share=SHARES, terms=TERMS, chunk=st.integers(1, 20_000))
def test_chunks(n, share, terms, chunk):
    p = float(int(share * (n - 1)))
    whole = prefill.prefill_seconds(n, p, **terms)
    costs = dict(step_seconds=0.001, reread_seconds_per_token=1e-9)
    said = prefill.chunked_prefill_seconds(n, p, chunk_tokens=chunk, **costs, **terms)
    starts = np.arange(p, n, chunk)[1:]  # tokens each further chunk reads again
    assert said == pytest.approx(whole + 0.001 * len(starts) + 1e-9 * starts.sum())
    assert prefill.chunk_count(n, p, chunk) == len(starts) + 1
    assert prefill.chunked_prefill_seconds(n, p, chunk_tokens=np.inf, **costs, **terms) == whole


def test_validity_and_edges():
    assert prefill.prefill_valid([4, 4, 4, np.inf], [0, 4, 5, 0]).tolist() == [True, True, False, False]
    assert prefill.linear_seconds_per_token(1e9, 1e15, 0.0) == np.inf
    assert prefill.attention_seconds_per_token_squared(1e6, 1e15, 0.0) == np.inf
    ring = dict(reductions=160, hidden_size=8192, bytes_per_element=2, bandwidth=450e9)
    one, two, eight = prefill.all_reduce_seconds_per_token(tensor_parallel=np.array([1, 2, 8]), **ring)
    assert one == 0 and two == 160 * 8192 * 2 / 450e9 and eight / two == pytest.approx(2 * 7 / 8)


def test_arrays_equal_scalars():
    n, p = np.array([[1000.0], [30000.0]]), np.array([0.0, 500.0, 1000.0])
    terms = dict(constant=0.01, linear=np.array([1e-5, 2e-5, 3e-5]), attention=1e-10)
    whole = prefill.prefill_seconds(n, p, **terms)
    assert whole.shape == (2, 3)
    for (r, c), value in np.ndenumerate(whole):
        assert value == prefill.prefill_seconds(n[r, 0], p[c], **dict(terms, linear=terms["linear"][c]))


def test_activation_traffic_by_hand():
    """80 layers x 8192 x 2 B x (8 + 13/2) over 2.68e12 B/s; one rank moves all, many ranks the replicated part."""
    said = prefill.activation_seconds_per_token(layers=80, hidden_size=8192, tensor_parallel=2, bandwidth=2.68e12)
    assert said == pytest.approx(80 * 8192 * 2 * 14.5 / 2.68e12)
    many = prefill.activation_seconds_per_token(layers=80, hidden_size=8192, tensor_parallel=1e12, bandwidth=2.68e12)
    assert many == pytest.approx(80 * 8192 * 2 * 8 / 2.68e12)
    ranks = np.array([1.0, 2, 4, 8])
    each = prefill.activation_seconds_per_token(layers=80, hidden_size=8192, tensor_parallel=ranks, bandwidth=2.68e12)
    assert np.all(np.diff(each) < 0) and each[1] == said
    assert prefill.activation_seconds_per_token(layers=1, hidden_size=1, tensor_parallel=1, bandwidth=np.inf) == 0


def test_chunks_in_the_mean_over_lengths():
    """`chunk_terms` against the exact chunked law, averaged over lengths and cached prefixes."""
    rng = np.random.default_rng(3)
    n = rng.integers(4_000, 100_000, 20_000).astype(float)
    p = np.floor(n * rng.uniform(0, 0.9, n.size))
    costs = dict(step_seconds=3e-3, reread_seconds_per_token=1e-7)
    exact = prefill.chunked_prefill_seconds(n, p, chunk_tokens=512.0, constant=0.0, linear=0.0, attention=0.0, **costs)
    linear, attention = prefill.chunk_terms(512.0, **costs)
    said = prefill.prefill_seconds(n, p, constant=0.0, linear=linear, attention=attention)
    assert said.mean() == pytest.approx(exact.mean(), rel=0.01)
    assert np.all(np.abs(said - exact) <= 3e-3 + 1e-7 * n)
    assert prefill.chunk_terms(np.inf, **costs) == (0, 0)
