"""Characteristic-time hit ratios against the reference vectors (theory_vectors.json, topic che_cache).

Those marked exact come from independent fixed points, with simulations beside them; tolerances are the
vectors' own. Vectors are recognised by what their inputs say, so any numbers may stand in them.
"""

from __future__ import annotations

import re

import numpy as np

from kvmodel.formulas import characteristic_time as che
from kvmodel.formulas import knee
from kvmodel.formulas.laws import Constant, Exponential, GeometricTurns, Mixture
from kvmodel.formulas.working_set import SessionStream, characteristic_time
from tests.theory_vectors import disagreements, vectors_of

NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
ELSEWHERE = {
    "curve_MB_mpki": "knees",
    "sensitivity": "knees",
    "value_per_hit_usd": "knees",
    "trace": "stack distances of traces",
    "trace_short": "footprints, which the session working sets stand for",
    "sampled_distance": "sampling by block, where traces are sampled by session",
}
NOT_MODELLED = {
    "hit_ratio_exact": "the state space of a tiny cache",
    "che_error": "the state space of a tiny cache",
    "average_eviction_time_references": "eviction time in whole references",
    "miss_ratio": "eviction time in whole references",
    "hit_ratio_belady": "a clairvoyant policy, see the traces",
    "hit_ratio_ttl_not_reset": "timers that a use does not restart",
    "mean_bytes_GB_nonreset": "timers that a use does not restart",
}


def popularity(i):
    return i.get("total_request_rate_per_s", 1.0) * che.zipf_popularity(i["objects"], i["zipf_alpha"])


def sizes(i):
    """As a vector words them: "repeat 1,4,16 from rank 1" or "10 for ranks 1..1000, 1 for the rest"."""
    said = i.get("size_blocks_by_rank", i.get("size_blocks"))
    if repeated := re.match(r"repeat ([\d.,\s]+) from rank 1$", said):
        return np.resize([float(s) for s in repeated[1].split(",")], i["objects"])
    rank, size = np.arange(1, i["objects"] + 1), np.zeros(i["objects"])
    for s, first, last in re.findall(NUMBER + r" for ranks (\d+)\.\.(\d+)", said):
        size[(int(first) <= rank) & (rank <= int(last))] = float(s)
    size[size == 0] = float(re.search(NUMBER + " for the rest", said)[1])
    return size


def answers(answer, name="hit_ratio"):
    return {"characteristic_time_s": answer.time, name: answer.hit_ratio, "byte_hit_ratio": answer.byte_hit_ratio}


def unequal(i):
    return answers(che.lru(popularity(i), i["cache_blocks"], sizes(i)), "object_hit_ratio")


def pinned(i):
    top = np.arange(i["objects"]) < i["pinned_objects"]
    return answers(che.pinned_lru(popularity(i), i["pinned_objects"] + i["lru_objects"], top))


def renewal(i):
    parts = re.findall(rf"prob {NUMBER} rate {NUMBER}\*lambda_i", i["interarrival"])
    share, speed = np.array(parts, float).T

    def gap(rate):
        return Mixture(tuple(share), tuple(Exponential(1.0 / (s * rate)) for s in speed))

    return answers(che.lru_renewal(popularity(i), i["cache_objects"], gap))


def chain(i):
    """Exclusive tiers with demotion are one stack cut in two."""
    if not i["policy"].startswith("exclusive"):
        raise ValueError(i["policy"])
    ends = i["tier1_objects"], i["tier1_objects"] + i["tier2_objects"]
    first, both = (che.lru(popularity(i), c).hit_ratio for c in ends)
    return {
        "tier1_hit_ratio": first,
        "tier2_hit_ratio_of_all_requests": both - first,
        "demotions_per_request": 1.0 - first,
    }


def loop(i):
    n, c = i["loop_objects"], i["cache_objects"]
    return {
        "hit_ratio_lru": float(c >= n),
        "hit_ratio_random_replacement": che.loop_hit_ratio_random(n, c),
        "hit_ratio_talus_hull": knee.concave_hull([0.0, c, n], [0.0, float(c >= n), 1.0])[1],
    }


def sessions(i):
    """The mean-field session equation: T from the mean working set, hit = P(gap <= T)."""
    parts = re.findall(rf"{NUMBER} exponential mean {NUMBER} s", i["turn_gap"])
    gap = Mixture(tuple(float(p) for p, _ in parts), tuple(Exponential(float(mean)) for _, mean in parts))
    first, more = re.match(rf"{NUMBER}\+{NUMBER}\*\(k-1\)$", i["kv_after_turn_k_GB"]).groups()
    turns = GeometricTurns(1.0 / (1.0 - i["continue_probability"]))
    stream = SessionStream(i["session_rate_per_s"], Constant(float(first)), Constant(float(more)), turns, gap)
    time = characteristic_time([stream], i["cache_GB"])
    return {"characteristic_time_s": time, "turn_hit_ratio_excluding_first_turns": gap.cdf(time)}


def timer(i):
    """A timer restarted by each use: hit = P(gap <= T), which is also the share of time an object is held."""
    hit = Exponential(1.0 / i["request_rate_per_s"]).cdf(i["ttl_s"])
    held = hit * i.get("objects", 0) * i.get("size_MB", 0.0) * 1e-3
    return {"hit_ratio_ttl_reset_on_hit": hit, "mean_bytes_GB_reset": held}


def equal(i):
    rate, capacity, policy = popularity(i), i["cache_objects"], i.get("policy", "LRU")
    law = {"LRU": che.lru, "FIFO": che.fifo, "RANDOM": che.fifo}[policy.split()[0]]
    answer = law(rate, capacity)
    marginal = che.lru_marginal_hit_ratio(rate, capacity)
    return answers(answer) | {"hit_ratio_che": answer.hit_ratio, "dhit_dcapacity_per_object": marginal}


# What only a vector of one kind says -> the formulas that answer it, most telling first.
SAID = (
    ("pinned_objects", pinned),
    ("tier1_objects", chain),
    ("interarrival", renewal),
    ("size_blocks_by_rank", unequal),
    ("size_blocks", unequal),
    ("loop_objects", loop),
    ("turn_gap", sessions),
    ("ttl_s", timer),
    ("cache_objects", equal),
)


def answer(i):
    return next(law for key, law in SAID if key in i)(i)


def is_answered_elsewhere_or_simulated(v):
    """Inclusive tiers are simulated only: what the second sees is not Poisson, and no formula here claims it."""
    return not ELSEWHERE.keys().isdisjoint(v["inputs"]) or "copies kept in both" in v["inputs"].get("policy", "")


def test_vectors(reference_data):
    found = vectors_of(reference_data, "che_cache")
    mine = [v for v in found if not is_answered_elsewhere_or_simulated(v)]
    assert disagreements(mine, lambda v: answer(v["inputs"]), not_modelled=NOT_MODELLED) == []


def test_limits_and_arrays():
    rate = che.zipf_popularity(50, 0.8)
    empty, full = che.lru(rate, 0.0), che.lru(rate, 50.0)
    assert (empty.time, empty.hit_ratio) == (0.0, 0.0)
    assert np.isinf(full.time) and full.hit_ratio == 1.0
    many = che.lru(rate[:, None], np.array([5.0, 20.0]))
    assert np.allclose(many.hit_ratio, [che.lru(rate, c).hit_ratio for c in (5.0, 20.0)], rtol=1e-12)
