"""Break-even laws, and every vector of topic `gpu_serving`, recognised by the keys of its inputs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.attention.full import FullAttention
from kvmodel.attention.latent import LatentAttention
from kvmodel.formulas import breakeven, cost, decode, prefill, queueing, transfer
from kvmodel.formulas.kv_size import Precision
from kvmodel.units import HOUR
from tests.theory_vectors import disagreements, vectors_of

DTYPES = {1: "fp8", 2: "bf16", 4: "fp32"}


def bytes_of_heads(i):
    shape = {"kv_heads": i["kv_heads"], "k_dim": i["head_dim"], "v_dim": i["head_dim"]}
    return grows(FullAttention(layers=i["layers"], **shape), i)


def bytes_of_latents(i):
    return grows(LatentAttention(layers=i["layers"], latent_dim=i["kv_lora_rank"], rope_dim=i["rope_dim"]), i)


def grows(group, i):
    dtype = DTYPES[i["bytes_per_element"]]
    return {"kv_bytes_per_token": group.growing_bytes_per_token(Precision(dtype, dtype))}


def session_cost(i):
    rate, sessions = i["fleet_usd_per_hour"] / HOUR, i["offered_sessions_per_s"]
    return {
        "usd_per_slo_session": cost.cost_per_qualified_session(
            rate, session_rate=sessions, attainment=i["slo_attainment"]
        ),
        "usd_per_offered_session": cost.cost_per_qualified_session(rate, session_rate=sessions),
    }


def flops(i):
    width = 2 * i["hidden_dim"] * i["layers"]  # heads * (qk + v) = 2 d per layer
    terms = dict(active_parameters=i["parameters"], attention_width=width)
    n, p = i["prompt_tokens"], i.get("cached_prefix_tokens", 0)
    whole, rest = (prefill.prefill_flops(n, x, **terms) for x in (0, p))
    return {
        "linear_flops": prefill.prefill_flops(n, p, active_parameters=i["parameters"], attention_width=0),
        "attention_flops_causal": prefill.prefill_flops(n, p, active_parameters=0, attention_width=width),
        "total_flops": rest,
        "saved_fraction": 1 - rest / whole,
    }


def least_bandwidth(i):
    # The rate of the linear term (2 FLOP per parameter) times half the FLOPs is the time of the whole work
    seconds = prefill.linear_seconds_per_token(i["total_flops"] / 2, i["gpus"] * i["peak_flops_per_gpu"], i["mfu"])
    bandwidth = breakeven.break_even_bandwidth(i["kv_bytes"], saved=seconds, fixed=i["fetch_latency_s"])
    return {"recompute_s": seconds, "break_even_bandwidth_GBps": bandwidth / 1e9}


def largest_utilisation(i):
    bandwidth = i["link_GBps"] * 1e9
    fetch = transfer.transfer_seconds(i["kv_bytes"], latency=i["fetch_latency_s"], bandwidth=bandwidth)
    service = transfer.transfer_seconds(i["kv_bytes"], latency=0, bandwidth=bandwidth)
    rho = breakeven.break_even_utilisation(fetch=fetch, service=service, saved=i["recompute_s"])
    return {"unloaded_fetch_s": fetch, "break_even_link_utilisation": rho}


def both(i):
    share, seconds = breakeven.linear_parallel_split(recompute=i["full_recompute_s"], fetch=i["full_load_s"])
    return {"time_linear_split_s": seconds, "loaded_fraction": share}


def roofline(i):
    terms = dict(
        weight_bytes=i["weight_bytes"],
        kv_bytes_per_token=i["kv_bytes_per_token"],
        bandwidth=i["effective_bandwidth_Bps"],
        active_parameters=i["parameters"],
        flops=i["effective_flops"],
    )
    memory, compute, _ = np.tensordot([1.0, i["batch"]], decode.step_lines(i["context_tokens"], **terms), 1)
    step = decode.step_seconds(i["batch"], i["context_tokens"], **terms)
    rate = decode.tokens_per_second(i["batch"], step)
    return {"memory_s": memory, "compute_s": compute, "tpot_s": step, "tokens_per_s": rate}


def batch_limit(i):
    space = i["hbm_bytes"] * (1 - i["reserve_fraction"]) - i["weight_bytes"]
    return {
        "max_sequences": decode.largest_batch(
            kv_space=space, context_tokens=i["context_tokens"], kv_bytes_per_token=i["kv_bytes_per_token"]
        )
    }


def distserve(i):
    """One device; two pipeline stages of half the work each; one device K times faster, K in the key's name."""
    d, rate = i["prefill_s"], i["rate_per_s"]
    wait = lambda s: queueing.single_server_mean_wait(rate * s, s, 0.0)  # noqa: E731
    faster = {name: float(k[1]) for name in i["asked"] if (k := re.fullmatch(r"ttft_intra_op_2_K([\d.]+)_s", name))}
    return {
        "ttft_single_s": d + wait(d),
        "ttft_inter_op_2_s": d + wait(d / 2),
        **{name: d / k + wait(d / k) for name, k in faster.items()},
    }


def goodput_deterministic(i):
    d = i["prefill_s"]
    rho = queueing.deterministic_max_utilisation(i["ttft_p99_slo_s"] - d, quantile=0.99, service=d)
    return {"max_rate_per_s": rho / d, "utilisation": rho}


def goodput_exponential(i):
    """The sojourn of M/M/1 is exponential: the rate whose p99 meets the limit, checked by the mean."""
    rate = i["service_rate_per_s"] - np.log(100) / i["ttft_p99_slo_s"]
    rho = rate / i["service_rate_per_s"]
    mean_wait = queueing.single_server_mean_wait(rho, 1 / i["service_rate_per_s"], 1.0)
    mean = mean_wait + 1 / i["service_rate_per_s"]
    assert np.exp(-i["ttft_p99_slo_s"] / mean) == pytest.approx(0.01)
    return {"max_rate_per_s": rate}


def floor(i):
    nbytes = i["tokens"] * i["kv_bytes_per_token"]
    return {"pcie_floor_s": transfer.transfer_seconds(nbytes, latency=0, bandwidth=i["pcie_GBps"] * 1e9)}


LAWS = [
    ({"parameters", "prompt_tokens", "layers", "hidden_dim"}, flops),
    ({"total_flops", "gpus", "peak_flops_per_gpu", "mfu", "kv_bytes", "fetch_latency_s"}, least_bandwidth),
    ({"recompute_s", "kv_bytes", "link_GBps", "fetch_latency_s"}, largest_utilisation),
    ({"full_recompute_s", "full_load_s"}, both),
    ({"weight_bytes", "parameters", "batch", "context_tokens", "effective_bandwidth_Bps"}, roofline),
    ({"hbm_bytes", "weight_bytes", "reserve_fraction", "context_tokens"}, batch_limit),
    ({"prefill_s", "rate_per_s"}, distserve),
    ({"prefill_s", "ttft_p99_slo_s", "service"}, goodput_deterministic),
    ({"service_rate_per_s", "ttft_p99_slo_s"}, goodput_exponential),
    ({"kv_bytes_per_token", "tokens", "pcie_GBps"}, floor),
    ({"layers", "kv_heads", "head_dim", "bytes_per_element"}, bytes_of_heads),
    ({"layers", "kv_lora_rank", "rope_dim", "bytes_per_element"}, bytes_of_latents),
    ({"fleet_usd_per_hour", "offered_sessions_per_s", "slo_attainment"}, session_cost),
]


def answer(vector):
    law = next(law for keys, law in LAWS if keys <= set(vector["inputs"]))
    return law(vector["inputs"] | {"asked": list(vector["expected"])})


def test_vectors(reference_data):
    assert disagreements(vectors_of(reference_data, "gpu_serving"), answer) == []


def test_worked_example():
    """method.md section 5: 2 GiB at 20 GiB/s plus 150 ms loses to 180 ms and wins against 2 s."""
    wire = transfer.transfer_seconds(2 * 2**30, latency=0, bandwidth=20 * 2**30)
    fetch = transfer.transfer_seconds(2 * 2**30, latency=0.150, bandwidth=20 * 2**30)
    assert (wire, fetch) == (0.100, 0.250)
    assert breakeven.fetch_wins(fetch, [0.180, 2.0]).tolist() == [False, True]


def test_slow_disk_hit():
    """github.com/ai-dynamo/dynamo/issues/6101: 2.4 GB, 40 s from disk against 0.9 s of recompute."""
    assert breakeven.break_even_bandwidth(2.4e9, saved=0.9) / 1e9 == pytest.approx(2.7, abs=0.05)
    assert not breakeven.fetch_wins(40.0, 0.9)


@pytest.mark.parametrize(("peak_flops", "printed"), [(2496e12, 5.86), (7912e12, 18.6)])
def test_mooncake_thresholds(peak_flops, printed):
    """Mooncake, FAST 2025, section 2.2 equation 2: Llama-3-70B, 8192 tokens, 8 x A800 and 8 x H800.

    Its attention count is not causal (4 p d per token and layer), its linear one 22 d^2, KV heads 1/8 of the
    heads.
    """
    layers, d, tokens = 80, 8192, 8192
    saved = prefill.saved_seconds(
        tokens, linear=22 * d * d * layers / peak_flops, attention=4 * d * layers / peak_flops
    )
    kv_bytes = tokens * 2 * d / 8 * 2 * layers
    # Both are printed with three digits
    assert breakeven.break_even_bandwidth(kv_bytes, saved=saved) / 1e9 == pytest.approx(printed, rel=2e-3)


NONE = st.just(0.0)
RATES = NONE | st.floats(1e-9, 1e-3)
CURVES = NONE | st.floats(1e-14, 1e-8)
FIXED = NONE | st.floats(1e-6, 10)


@given(fixed=FIXED, per_token=RATES, linear=RATES, attention=CURVES)
def test_break_even_is_where_the_two_times_cross(fixed, per_token, linear, attention):
    p = breakeven.break_even_tokens(fixed=fixed, per_token=per_token, linear=linear, attention=attention)
    assert p >= 0 and not np.isnan(p)
    if np.isfinite(p) and p < 1e12:
        saved = lambda x: prefill.saved_seconds(x, linear=linear, attention=attention)  # noqa: E731
        assert saved(p) == pytest.approx(fixed + per_token * p, rel=1e-6, abs=1e-9)
        longer = 1.01 * p + 1
        assert saved(longer) >= fixed + per_token * longer * (1 - 1e-12)
        shorter = 0.99 * p
        assert saved(shorter) <= fixed + per_token * shorter + 1e-12


@pytest.mark.parametrize(
    ("fixed", "per_token", "linear", "attention", "tokens"),
    [
        (0.0, 1.0, 2.0, 0.0, 0.0),  # nothing fixed and cheaper per token: always
        (0.0, 0.0, 0.0, 0.0, np.inf),  # a tie is no win
        (1.0, 2.0, 2.0, 0.0, np.inf),  # never catches up
        (1.0, 3.0, 2.0, 0.0, np.inf),
        (1.0, 1.0, 2.0, 0.0, 1.0),  # F / (l - c)
        (2.0, 1.0, 1.0, 2.0, 1.0),  # sqrt(F / a)
        (0.0, 3.0, 1.0, 1.0, 2.0),  # (c - l) / a: dearer per token at first, the square overtakes
        (np.inf, 1.0, 2.0, 1.0, np.inf),
        (1.0, np.inf, 2.0, 1.0, np.inf),
        (-1.0, 0.0, 1.0, 0.0, 0.0),  # the GPU's queue alone is longer than the fetch
        (-1.0, 4.0, 0.0, 1.0, 2.0 + np.sqrt(3.0)),  # wins short, loses between, wins from the larger root on
    ],
)
def test_break_even_by_hand(fixed, per_token, linear, attention, tokens):
    said = breakeven.break_even_tokens(fixed=fixed, per_token=per_token, linear=linear, attention=attention)
    assert said == pytest.approx(tokens)


@given(fixed=FIXED, per_token=RATES, linear=RATES, attention=CURVES, more=st.floats(1, 10))
def test_break_even_grows_with_the_cost_of_fetching(fixed, per_token, linear, attention, more):
    terms = dict(linear=linear, attention=attention)
    p = breakeven.break_even_tokens(fixed=fixed, per_token=per_token, **terms)
    assert breakeven.break_even_tokens(fixed=fixed * more, per_token=per_token, **terms) >= p * (1 - 1e-9)
    assert breakeven.break_even_tokens(fixed=fixed, per_token=per_token * more, **terms) >= p * (1 - 1e-9)


def test_bandwidth_and_utilisation_at_their_edges():
    assert breakeven.break_even_bandwidth(1.0, saved=[1.0, 1.0, 0.0], fixed=[1.0, 2.0, 0.0]).tolist() == [np.inf] * 3
    assert breakeven.break_even_bandwidth(0.0, saved=1.0) == 0
    rho = breakeven.break_even_utilisation(fetch=[1.0, 2.0, 0.1], service=0.1, saved=[1.0, 1.0, 1e9])
    assert rho[:2].tolist() == [0, 0] and rho[2] == pytest.approx(1)
    assert breakeven.break_even_queue_seconds(fetch=[1.0, 3.0], saved=2.0).tolist() == [1, 0]


@given(service=st.floats(1e-3, 1), slack=st.floats(1e-3, 10), scv=st.floats(0, 10))
def test_wait_at_the_break_even_utilisation_is_the_slack(service, slack, scv):
    rho = breakeven.break_even_utilisation(fetch=service, service=service, saved=service + slack, scv=scv)
    assert queueing.single_server_mean_wait(rho, service, scv) == pytest.approx(slack)


TERMS = {
    "fixed": FIXED,
    "per_token": RATES,
    "constant": st.floats(0, 1),
    "linear": st.floats(1e-6, 1e-3),
    "attention": CURVES,
}


@given(st.fixed_dictionaries(TERMS), st.floats(1, 2e5))
def test_parallel_split_meets_and_beats_either_alone(terms, tokens):
    q, seconds = breakeven.parallel_split(tokens, **terms)
    alone = terms["constant"] + tokens * (terms["linear"] + terms["attention"] * tokens)
    fetch = terms["fixed"] + terms["per_token"] * tokens
    assert 0 <= q <= tokens
    assert seconds <= min(alone, max(fetch, terms["constant"])) * (1 + 1e-9)
    if 0 < q < tokens:
        assert seconds == pytest.approx(terms["fixed"] + terms["per_token"] * (tokens - q), rel=1e-6, abs=1e-9)


@given(recompute=st.floats(1e-3, 10), fetch=st.floats(1e-3, 10))
def test_linear_split_is_the_parallel_split_without_attention(recompute, fetch):
    share, seconds = breakeven.linear_parallel_split(recompute=recompute, fetch=fetch)
    q, same = breakeven.parallel_split(1.0, fixed=0, per_token=fetch, constant=0, linear=recompute, attention=0)
    assert same == pytest.approx(seconds) and 1 - q == pytest.approx(share)


@given(st.fixed_dictionaries(TERMS), st.floats(1, 1e5), st.floats(0.01, 1))
def test_no_partial_prefix_beats_all_or_nothing(terms, tokens, share):
    held = share * tokens
    best = breakeven.fetch_or_recompute_seconds(tokens, held, **terms)
    law = {k: terms[k] for k in ("constant", "linear", "attention")}
    partial = held * np.linspace(0.01, 1, 50)
    times = terms["fixed"] + terms["per_token"] * partial + prefill.prefill_seconds(tokens, partial, **law)
    assert best <= times.min() + 1e-9 * times.max()  # rounding of the parts that cancel
    assert best <= prefill.prefill_seconds(tokens, 0, **law) * (1 + 1e-12)


@given(per_token=RATES, linear=st.floats(1e-6, 1e-3), attention=st.floats(1e-12, 1e-8))
def test_serial_split_is_the_minimum_of_its_cost(per_token, linear, attention):
    n = 1e5
    cost = lambda q: linear * q + attention * q * q + per_token * (n - q)  # noqa: E731
    best = breakeven.compute_then_fetch_split(n, per_token=per_token, linear=linear, attention=attention)
    assert cost(best) <= cost(np.linspace(0, n, 1001)).min() * (1 + 1e-12)
    position = breakeven.break_even_position(per_token=per_token, linear=linear, attention=attention)
    if 0 < position < n:
        assert linear + 2 * attention * position == pytest.approx(per_token)


def test_arrays_equal_scalars():
    fixed, per_token = np.array([[0.0], [0.1], [np.inf]]), np.array([0.0, 1e-5, 3e-5, 1e-3])
    terms = dict(linear=2e-5, attention=1e-10)
    whole = breakeven.break_even_tokens(fixed=fixed, per_token=per_token, **terms)
    q, seconds = breakeven.parallel_split(8192, fixed=fixed, per_token=per_token, constant=0.01, **terms)
    assert whole.shape == q.shape == seconds.shape == (3, 4)
    for (r, c), value in np.ndenumerate(whole):
        one = dict(fixed=fixed[r, 0], per_token=per_token[c], **terms)
        assert value == breakeven.break_even_tokens(**one)
        assert (q[r, c], seconds[r, c]) == breakeven.parallel_split(8192, constant=0.01, **one)


@given(
    fixed=st.floats(1e-6, 10),
    per_token=st.floats(1e-7, 1e-2),
    linear=st.floats(1e-7, 1e-2),
    attention=st.floats(1e-12, 1e-7),
)
def test_search_finds_the_closed_root(fixed, per_token, linear, attention):
    """`break_even_where` of the plain gain is `break_even_tokens`, up to its resolution and its longest prefix."""

    def gain(p):
        return linear * p + attention * p * p - fixed - per_token * p

    said = breakeven.break_even_where(gain, 0.0)
    root = breakeven.break_even_tokens(fixed=fixed, per_token=per_token, linear=linear, attention=attention)
    if root <= 2.0**30:
        np.testing.assert_allclose(said, root, rtol=1e-6)
    else:
        assert said == np.inf


def test_search_at_its_ends():
    assert breakeven.break_even_where(lambda p: p + 1.0, 0.0) == 0
    assert breakeven.break_even_where(lambda p: -1.0 - p, 0.0) == np.inf
    assert breakeven.break_even_where(lambda p: p * np.nan, 0.0) == np.inf
    load = np.array([1.0, 2.0])
    np.testing.assert_allclose(breakeven.break_even_where(lambda p: load * p - 6.0, load), [6, 3])
