"""Write admission against the field's vectors and simulations, and the law that a budget is kept.

Vectors are recognised by the keys of their inputs. Simulated ones are met by the model itself, within the
vector's own tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import admission
from tests.theory_vectors import disagreements, vectors_of


def popularity(i):
    rate = np.arange(1.0, i["objects"] + 1) ** -i["zipf_alpha"]
    return i.get("total_request_rate_per_s", 1.0) * rate / rate.sum()


def coin(i):
    cache = admission.q_lru(popularity(i), i["cache_objects"], i["insert_probability_q"])
    return {
        "hit_ratio": cache.hit_ratio,
        "characteristic_time_s": cache.characteristic_time,
        "insertions_per_request": cache.insertions_per_request,
    }


def hottest(i):
    return {"hit_ratio": admission.static_best_hit_ratio(popularity(i), i["cache_objects"])}


def independent_filter(i):
    rate = popularity(i)
    recent = admission.q_lru(rate, i["filter_cache_objects"], 1.0)
    cache = admission.q_lru(rate, i["cache_objects"], recent.hit_probability)
    return {
        "hit_ratio": cache.hit_ratio,
        "characteristic_time_filter_s": recent.characteristic_time,
        "characteristic_time_cache_s": cache.characteristic_time,
    }


def joint_filter(i):
    cache = admission.second_use(popularity(i), i["cache_objects"], i["filter_cache_objects"])
    return {"hit_ratio": cache.hit_ratio, "insertions_per_request": cache.insertions_per_request}


def open_loop(i):
    p = admission.open_loop_probability(i["device_write_budget_MBps"], i["candidate_write_MBps"], i["waf"])
    return {"admit_probability": p}


def closed_loop(i):
    rate, budget = popularity(i), i["allowed_insertions_per_request"]
    q = admission.closed_loop_probability(rate, i["cache_objects"], budget * rate.sum())
    lru = admission.q_lru(rate, i["cache_objects"], 1.0)
    return {
        "admit_probability": q,
        "hit_ratio": admission.q_lru(rate, i["cache_objects"], q).hit_ratio,
        "open_loop_probability_using_lru_miss_ratio": admission.open_loop_probability(budget, 1 - lru.hit_ratio),
    }


def window(i):
    p = admission.repeat_probability(i["request_rate_per_s"], i["window_s"], i["min_hits_k"])
    return {"probability_at_least_k_in_window": p}


def dynamic_probability(i):
    base = admission.cachelib_base_probability(i["item_bytes_key_plus_value"], i["base_bytes"], i["size_decay"])
    return {"base_probability": base, "admit_probability": min(1, base * i["probability_factor"])}


def dynamic_factor(i):
    target = admission.cachelib_target_rate(
        i["configured_rate_Bps"], i["elapsed_s"], i["bytes_written_total"], i["max_rate_Bps"]
    )
    factor = admission.cachelib_factor(
        i["factor_before"],
        target,
        i["observed_rate_Bps"],
        i["change_window"],
        i["factor_min"],
        i["factor_max"],
    )
    return {
        "current_target_rate_Bps": target,
        "raw_ratio": target / i["observed_rate_Bps"],
        "factor_after": factor,
    }


# What only a vector of one kind says -> the formulas that answer it, most telling first.
SAID = (
    ("configured_rate_Bps", dynamic_factor),
    ("item_bytes_key_plus_value", dynamic_probability),
    ("min_hits_k", window),
    ("candidate_write_MBps", open_loop),
    ("allowed_insertions_per_request", closed_loop),
    ("insert_probability_q", coin),
    ("filter_cache_objects", lambda i: (independent_filter if "total_request_rate_per_s" in i else joint_filter)(i)),
    ("cache_objects", hottest),
)


def answer(i):
    return next(law for key, law in SAID if key in i)(i)


def test_vectors(reference_data):
    mine = vectors_of(reference_data, "write_admission")
    assert disagreements(mine, lambda v: answer(v["inputs"])) == []


def test_independent_filter_writes_too_much(reference_data):
    """Why `second_use` is a model of its own: the simulated 2-LRU of 10,000 Zipf 0.8 objects inserts
    0.046225."""
    rate = popularity({"objects": 10000, "zipf_alpha": 0.8})
    recent = admission.q_lru(rate, 1000, 1.0).hit_probability
    assert admission.q_lru(rate, 1000, recent).insertions_per_request == pytest.approx(1.16 * 0.046225, rel=0.01)
    assert admission.second_use(rate, 1000, 1000).insertions_per_request == pytest.approx(0.046225, rel=0.005)


def simulated_second_use(rate, sizes, capacity, names, requests, rng):
    """Byte-sized LRU behind an LRU list of names; hit ratio and bytes written per second of virtual time."""
    recent, cache, used, hits, written = {}, {}, 0.0, 0, 0.0
    for k, i in enumerate(rng.choice(len(rate), requests, p=rate / rate.sum())):
        measuring = k >= requests // 4
        if i in cache:
            cache[i] = cache.pop(i)
            hits += measuring
        elif i in recent:
            cache[i] = None
            used += sizes[i]
            written += measuring * sizes[i]
            while used > capacity:
                used -= sizes[victim := next(iter(cache))]
                del cache[victim]
        recent.pop(i, None)
        recent[i] = None
        if len(recent) > names:
            del recent[next(iter(recent))]
    measured = requests - requests // 4
    return hits / measured, written / (measured / rate.sum())


def test_second_use_with_sizes_meets_a_simulation():
    """Names list longer and shorter than the cache. 240,000 requests: standard error 0.001 in hits, 1 % in
    writes."""
    rng = np.random.default_rng(5)
    rate = popularity({"objects": 2000, "zipf_alpha": 0.9})
    sizes = rng.choice([1.0, 2.0, 4.0], 2000)
    for names in (100, 800):
        hit, written = simulated_second_use(rate, sizes, 700.0, names, 240_000, rng)
        cache = admission.second_use(rate, 700.0, names, sizes)
        assert cache.hit_ratio == pytest.approx(hit, abs=0.005)
        assert cache.write_rate == pytest.approx(written, rel=0.04)


CATALOGUES = st.lists(st.floats(1e-3, 10.0), min_size=20, max_size=60)


@given(CATALOGUES, st.floats(0.05, 0.9), st.floats(1e-6, 1.2))
def test_closed_loop_keeps_the_budget_and_uses_it(rates, part, share):
    rate = np.array(rates)
    capacity = part * len(rate)
    budget = share * admission.q_lru(rate, capacity, 1.0).write_rate
    q = admission.closed_loop_probability(rate, capacity, budget)
    written = admission.q_lru(rate, capacity, q).write_rate
    assert written <= budget * (1 + 1e-9) or q == 1.0
    assert q == 1.0 if share > 1 else written >= budget * (1 - 1e-3)
    assert admission.open_loop_probability(budget, admission.q_lru(rate, capacity, 1.0).write_rate) <= q * (1 + 1e-9)


@given(CATALOGUES, st.floats(0.05, 0.9), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_a_stricter_coin_writes_less_and_hits_more(rates, part, a, b):
    rate = np.array(rates)
    low, high = np.sort([a, b])
    strict, lax = (admission.q_lru(rate, part * len(rate), q) for q in (low, high))
    assert strict.write_rate <= lax.write_rate * (1 + 1e-9)
    assert strict.hit_ratio >= lax.hit_ratio - 1e-9
    assert strict.hit_ratio <= admission.static_best_hit_ratio(rate, part * len(rate)) + 1e-9


@given(CATALOGUES, st.floats(0.05, 0.9))
def test_a_list_of_all_names_is_plain_lru_and_none_writes_nothing(rates, part):
    rate = np.array(rates)
    lru = admission.q_lru(rate, part * len(rate), 1.0)
    seen = admission.second_use(rate, part * len(rate), len(rate))
    assert seen.hit_ratio == pytest.approx(lru.hit_ratio)
    assert seen.write_rate == pytest.approx(lru.write_rate)
    assert admission.second_use(rate, part * len(rate), 0.0).write_rate == pytest.approx(0.0, abs=1e-12)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 10)), min_size=1, max_size=8), st.floats(0, 30))
def test_rank_keeps_the_budget_and_no_class_waits_behind_a_worse_one(classes, budget):
    score, rate = np.array(classes).T
    share = admission.admitted_share(score, rate, budget)
    assert (share * rate).sum() <= budget * (1 + 1e-9) + 1e-12
    order = np.argsort(-score, kind="stable")
    flows = share[order][rate[order] > 0]
    assert np.all(np.diff(flows) <= 0)


def test_value_by_hand():
    """70B at 8k on 8 GPUs: 0.5 x (0.9 s - 0.3 s) at 0.0072 USD/s over 1.3 GB is 1.66e-12 USD per byte."""
    value = admission.value_per_byte(0.5, 0.9, 0.3, 0.0072, 1.3e9)
    assert value == pytest.approx(1.6615e-12, rel=1e-4)
    assert admission.admission_gain(value, 1e-12, 1.3e9) == pytest.approx(0.6615e-12 * 1.3e9, rel=1e-4)
    assert admission.value_per_byte(0.5, 0.2, 0.3, 0.0072, 1.3e9) < 0


def test_ends():
    rate = np.array([3.0, 2.0, 1.0])
    full = admission.q_lru(rate, 3.0, 0.1)
    assert full.hit_ratio == 1.0 and full.characteristic_time == np.inf and full.write_rate == 0.0
    assert admission.q_lru(rate, 2.0, 0.0).hit_ratio == pytest.approx(5 / 6)
    assert admission.closed_loop_probability(rate, 2.0, 0.0) == 0.0
    assert admission.closed_loop_probability(rate, 2.0, 1e9) == 1.0
    assert admission.open_loop_probability(1.0, 0.0) == 1.0 and admission.open_loop_probability(0.0, 1.0) == 0.0
    assert admission.repeat_probability(0.0, 60.0, 2) == 0.0
    assert list(admission.characteristic_time_valid([1.0, 4.0], [100.0, 400.0])) == [False, True]
    assert admission.cachelib_target_rate(1e6, 0.0, 1e15) == 0.0
    assert admission.cachelib_factor(1.0, 1e6, 0.0) == 1.25


def test_arrays_equal_scalars():
    rate = np.linspace(1.0, 30.0, 40)
    capacity, budget = np.array([[5.0], [20.0]]), np.array([0.0, 1.0, 50.0])
    q = admission.closed_loop_probability(rate[:, None, None], capacity, budget)
    second = admission.second_use(rate[:, None, None], capacity, np.array([3.0, 10.0, 40.0]))
    assert q.shape == second.hit_ratio.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert q[i, j] == pytest.approx(admission.closed_loop_probability(rate, capacity[i, 0], budget[j]))
        one = admission.second_use(rate, capacity[i, 0], [3.0, 10.0, 40.0][j])
        assert second.write_rate[i, j] == pytest.approx(one.write_rate)
