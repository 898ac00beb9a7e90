"""Laws of waiting, against the field's vectors, exact arithmetic and algebra.

Every vector of topic `queueing` is recognised by the keys of its inputs, so any numbers may stand in them.
Numbers a vector calls simulated are what the system does, not what a law says: a law must come near them or
flag the vector.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import queueing, transfer
from tests.theory_vectors import disagreements, vectors_of

P95_P99 = np.array([0.95, 0.99])
LOADS = st.floats(0.01, 0.97)
SECONDS = st.floats(1e-4, 1e3)
SCVS = st.floats(0.0, 20.0)


def erlang(i):
    c, rho, s = i["servers"], i["utilisation"], i["mean_service_s"]
    p95, p99 = queueing.pooled_wait_quantile(P95_P99, servers=c, utilisation=rho, mean_service=s)
    return {
        "prob_wait": queueing.wait_probability(c, rho),
        "mean_wait_s": queueing.pooled_mean_wait(c, rho, s),
        "p95_wait_s": p95,
        "p99_wait_s": p99,
    }


def pollaczek(i):
    return {"mean_wait_s": queueing.single_server_mean_wait(i["utilisation"], i["mean_service_s"], i["service_scv"])}


def deterministic(i):
    rho, s = i["utilisation"], i["service_s"]
    p95, p99 = queueing.deterministic_wait_quantile(P95_P99, utilisation=rho, service=s)
    wait = queueing.single_server_mean_wait(rho, s, 0.0)
    shortcut = queueing.tail_quantile(0.99, utilisation=rho, mean_wait=wait)
    return {
        "mean_wait_s": wait,
        "p95_wait_s": p95,
        "p99_wait_s": p99,
        "p99_exponential_tail_approx_s": shortcut,
    }


def allen_cunneen(i):
    c, rho, s = i["servers"], i["utilisation"], i["mean_service_s"]
    mean = queueing.allen_cunneen_mean_wait(c, rho, s, arrival_scv=i["arrival_scv"], service_scv=i["service_scv"])
    return {"allen_cunneen_mean_wait_s": mean}


def lognormal(i):
    scv = float(i["model"].split("scv")[1].split(")")[0])  # the service law stands in the name: "M/lognormal(scv 2)/1"
    wait = queueing.single_server_mean_wait(i["utilisation"], i["mean_service_s"], scv)
    return {
        "mean_wait_s": wait,
        "exponential_tail_p99_s": queueing.tail_quantile(0.99, utilisation=i["utilisation"], mean_wait=wait),
    }


def priority(i):
    waits = queueing.priority_mean_wait(
        *(np.array(i[k], float) for k in ("rates_per_s", "mean_service_s", "service_scv"))
    )
    return {"wait_high_s": waits[0], "wait_low_s": waits[-1]}


def fixed_batches(i):
    wait = queueing.batch_mean_wait(
        i["batch_rate_per_s"],
        mean_batch=i["batch_size"],
        batch_scv=0.0,
        mean_service=i["service_s"],
        service_scv=i["service_scv"],
    )
    return {"mean_wait_per_job_s": wait}


def geometric_batches(i):
    mean = i["mean_batch_size_geometric_from_1"]
    wait = queueing.batch_mean_wait(
        i["batch_rate_per_s"],
        mean_batch=mean,
        batch_scv=1.0 - 1.0 / mean,
        mean_service=i["mean_service_s"],
        service_scv=i["service_scv"],
    )
    return {"mean_wait_per_job_s": wait}


def sharing(i):
    return {
        "mean_sojourn_s": queueing.shared_sojourn_seconds(i["mean_service_s"], i["utilisation"]),
        "conditional_sojourn_for_job_s": queueing.shared_sojourn_seconds(i["job_service_s"], i["utilisation"]),
    }


def equal_burst(i):
    n, alone = i["jobs"], i["size_GB"] / i["link_GBps"]
    finish = alone * np.arange(1, n + 1)  # first come first served, one after the other
    return {
        "ps_all_finish_s": queueing.burst_seconds(n, alone),
        "fcfs_mean_finish_s": queueing.burst_mean_seconds(n, alone),
        "fcfs_p99_finish_s": np.quantile(finish, 0.99, method="inverted_cdf"),
    }


def unequal_burst(i):
    services = np.array(i["sizes_GB"]) / i["link_GBps"]
    cap = i["per_job_cap_GBps"]
    times = queueing.drain_seconds(services, largest_share=1.0 if cap is None else cap / i["link_GBps"])
    return {
        "finish_times_s": times,
        "mean_finish_s": times.mean(),
        "srpt_mean_finish_s": queueing.shortest_first_mean_seconds(services),
    }


def depth(i):
    d = transfer.queue_depth(
        bandwidth=i["target_GBps"] * 1e9, latency=i["latency_us"] * 1e-6, operation_bytes=i["io_bytes"]
    )
    return {"queue_depth": d}


LAWS = {
    frozenset({"servers", "utilisation", "mean_service_s"}): erlang,
    frozenset({"utilisation", "service_scv", "mean_service_s"}): pollaczek,
    frozenset({"utilisation", "service_s"}): deterministic,
    frozenset(
        {
            "model",
            "servers",
            "utilisation",
            "arrival_scv",
            "service_scv",
            "mean_service_s",
            "hyperexponential",
        }
    ): allen_cunneen,
    frozenset({"model", "utilisation", "mean_service_s"}): lognormal,
    frozenset({"rates_per_s", "mean_service_s", "service_scv"}): priority,
    frozenset({"batch_rate_per_s", "batch_size", "service_s", "service_scv"}): fixed_batches,
    frozenset(
        {"batch_rate_per_s", "mean_batch_size_geometric_from_1", "mean_service_s", "service_scv"}
    ): geometric_batches,
    frozenset({"utilisation", "mean_service_s", "job_service_s"}): sharing,
    frozenset({"jobs", "size_GB", "link_GBps"}): equal_burst,
    frozenset({"sizes_GB", "link_GBps", "per_job_cap_GBps"}): unequal_burst,
    frozenset({"io_bytes", "latency_us", "target_GBps"}): depth,
}


SIMULATED = {f"simulated_{name}_wait_s": "the system, not a law" for name in ("mean", "p50", "p90", "p95", "p99")}
PRINTED = {"exponential_tail_p99_s": 5e-6}  # six digits and no tolerance


def vectors(reference_data):
    return vectors_of(reference_data, "queueing")


def answer(v):
    """By the law whose inputs are all there, the most telling one."""
    fitting = [keys for keys in LAWS if keys <= set(v["inputs"])]
    return LAWS[max(fitting, key=len)](v["inputs"])


def test_vectors(reference_data):
    assert disagreements(vectors(reference_data), answer, not_modelled=SIMULATED, digits=PRINTED) == []


def test_allen_cunneen_is_near_the_simulation_or_flagged(reference_data):
    for v in vectors(reference_data):
        if "arrival_scv" not in v["inputs"] or "simulated_mean_wait_s" not in v["expected"]:
            continue
        i, said = v["inputs"], allen_cunneen(v["inputs"])["allen_cunneen_mean_wait_s"]
        valid = queueing.allen_cunneen_valid(i["utilisation"], arrival_scv=i["arrival_scv"])
        assert not valid or said == pytest.approx(v["expected"]["simulated_mean_wait_s"], rel=0.10), v["id"]
        if i["arrival_scv"] < 0.5 or i["arrival_scv"] > 2:
            assert not valid, v["id"]


def test_tail_is_near_the_p99_or_flagged(reference_data):
    for v in vectors(reference_data):
        i, expected = v["inputs"], v["expected"]
        if {"exponential_tail_p99_s", "simulated_p99_wait_s"} <= set(expected):
            said, truth, scv = (
                expected["exponential_tail_p99_s"],
                expected["simulated_p99_wait_s"],
                lognormal_scv(v),
            )
        elif {"p99_exponential_tail_approx_s", "p99_wait_s"} <= set(expected):
            said, truth, scv = expected["p99_exponential_tail_approx_s"], expected["p99_wait_s"], 0.0
        else:
            continue
        assert not queueing.tail_valid(i["utilisation"], service_scv=scv) or said == pytest.approx(truth, rel=0.1), v[
            "id"
        ]


def lognormal_scv(vector):
    return float(vector["inputs"]["model"].split("scv")[1].split(")")[0])


def exact_deterministic(t, rho):
    """Erlang's alternating series in 80 digits."""
    with localcontext() as context:
        context.prec = 80
        t, rho, total, factorial = Decimal(t), Decimal(rho), Decimal(0), Decimal(1)
        for j in range(int(t) + 1):
            factorial *= max(j, 1)
            x = rho * (t - j)
            total += ((-x) ** j if j else Decimal(1)) / factorial * x.exp()
        return float(1 - (1 - rho) * total)


@pytest.mark.parametrize("rho", [0.01, 0.2, 0.5, 0.8, 0.95, 0.999])
def test_deterministic_wait_keeps_its_accuracy_where_the_series_cancels(rho):
    t = np.array([0.0, 0.3, 1.0, 2.5, 5.0, 9.0, 11.9, 12.0, 12.1, 13.0, 20.0, 40.0])
    truth = [exact_deterministic(x, rho) for x in t]
    # 1e-9 absolute: the docstring's promise, reached at the switch from series to pole
    np.testing.assert_allclose(
        queueing.deterministic_wait_exceedance(t, utilisation=rho, service=1.0), truth, atol=1e-9
    )


@given(rho=LOADS, q=st.floats(0.5, 0.9999), service=SECONDS)
def test_deterministic_quantile_inverts_the_exceedance(rho, q, service):
    t = queueing.deterministic_wait_quantile(q, utilisation=rho, service=service)
    left = queueing.deterministic_wait_exceedance(t, utilisation=rho, service=service)
    assert left == pytest.approx(1 - q, abs=1e-7) or (t == 0 and left <= 1 - q)


@given(t=st.floats(0.0, 50.0), q=st.floats(0.5, 0.999))
def test_largest_load_just_meets_the_quantile(t, q):
    rho = queueing.deterministic_max_utilisation(t, quantile=q, service=1.0)
    assert 0 <= rho <= 1
    assert queueing.deterministic_wait_exceedance(t, utilisation=rho, service=1.0) <= 1 - q + 1e-9


@given(rho=LOADS, s=SECONDS, scv=SCVS)
def test_special_cases_agree(rho, s, scv):
    """Algebra: batches of one, one priority class and Allen-Cunneen with Ca2 = 1 are all M/G/1."""
    mean = queueing.single_server_mean_wait(rho, s, scv)
    kingman = queueing.allen_cunneen_mean_wait(1, rho, s, arrival_scv=1.0, service_scv=scv)
    single = queueing.batch_mean_wait(rho / s, mean_batch=1, batch_scv=0.0, mean_service=s, service_scv=scv)
    alone = queueing.priority_mean_wait(np.array([rho / s]), np.array([s]), np.array([scv]))[0]
    np.testing.assert_allclose([kingman, single, alone], mean, rtol=1e-9)


@given(rho=LOADS, s=SECONDS, share=st.floats(0.05, 0.95), scv=SCVS)
def test_priorities_only_move_the_wait_around(rho, s, share, scv):
    """Kleinrock's conservation law: load-weighted waits sum to the one-class value."""
    rates = np.array([share, 1 - share]) * rho / s
    waits = queueing.priority_mean_wait(rates, np.full(2, s), np.full(2, scv))
    assert np.sum(rates * s * waits) == pytest.approx(rho * queueing.single_server_mean_wait(rho, s, scv))
    assert waits[0] < waits[1]


@given(c=st.integers(1, 500), rho=LOADS)
def test_wait_probability_is_a_probability_that_falls_with_servers(c, rho):
    few, many = queueing.wait_probability(np.array([c, c + 1]), rho)
    assert 0 <= many <= few <= 1


def test_others_delay_against_a_simulated_extra_job():
    """One more job of 2 s dropped into an M/D/1 queue: summed delay of all later arrivals, paired runs."""
    rng = np.random.default_rng(5)
    rho, extra, runs, jobs = 0.6, 2.0, 4000, 120
    gaps = rng.exponential(1 / rho, (jobs, runs))
    start = 1.0 * (np.arange(runs) % 2)  # backlog found: half the runs 0 s, half 1 s
    plain, loaded, summed = start, start + extra, np.zeros(runs)
    for gap in gaps:
        plain, loaded = np.maximum(plain - gap, 0), np.maximum(loaded - gap, 0)
        summed += loaded - plain
        plain, loaded = plain + 1.0, loaded + 1.0
    said = queueing.others_delay_seconds(extra, rate=rho, utilisation=rho, mean_wait=0.5)
    assert said == pytest.approx(summed.mean(), abs=4 * summed.std() / np.sqrt(runs))


@given(n=st.integers(1, 40), s=SECONDS, z=st.floats(0, 1e3))
def test_closed_queue_between_its_bounds(n, s, z):
    """Asymptotic bounds of a closed network with one queue (Denning and Buzen 1978)."""
    said = queueing.closed_mean_sojourn(n, s, z)
    assert max(s, n * s - z) * (1 - 1e-9) <= said <= n * s * (1 + 1e-9)
    assert queueing.closed_mean_sojourn(n, s, 0.0) == pytest.approx(n * s)
    assert queueing.closed_mean_sojourn(n, s, np.inf) == pytest.approx(s)


def test_closed_queue_of_two_by_hand():
    """Two customers, S = Z = 1: R_1 = 1, Q_1 = 1/2, R_2 = 3/2; as an array beside one customer."""
    assert queueing.closed_mean_sojourn(np.array([1, 2]), 1.0, 1.0).tolist() == [1.0, 1.5]


def test_saturation_is_infinite_and_flagged():
    for rho in (1.0, 1.5):
        assert queueing.single_server_mean_wait(rho, 1.0, 0.0) == np.inf
        assert queueing.pooled_mean_wait(4, rho, 1.0) == np.inf
        assert queueing.shared_sojourn_seconds(1.0, rho) == np.inf
        assert queueing.deterministic_wait_quantile(0.99, utilisation=rho, service=1.0) == np.inf
        assert queueing.tail_quantile(0.99, utilisation=rho, mean_wait=np.inf) == np.inf
        assert queueing.tail_exceedance(1e9, utilisation=rho, mean_wait=np.inf) == 1
        assert not queueing.stable(rho)
        assert not queueing.allen_cunneen_valid(rho, arrival_scv=1.0)


def test_an_idle_server_makes_nobody_wait():
    assert queueing.single_server_mean_wait(0.0, 1.0, 4.0) == 0
    assert queueing.pooled_mean_wait(4, 0.0, 1.0) == 0
    assert queueing.deterministic_wait_quantile(0.99, utilisation=0.0, service=1.0) == 0
    assert queueing.tail_exceedance(0.0, utilisation=0.0, mean_wait=0.0) == 0


def test_capped_drain_runs_at_the_cap_until_few_are_left():
    """By hand: three jobs of 1, 1, 2 s with a cap of 1/4 of the link: 4, 4, 8 s, the link never full."""
    np.testing.assert_allclose(queueing.drain_seconds([1.0, 1.0, 2.0], largest_share=0.25), [4, 4, 8])


def test_arrays_equal_scalars():
    rho = np.array([[0.0, 0.3], [0.9, 1.2]])
    whole = queueing.deterministic_wait_exceedance(np.array([0.5, 14.0]), utilisation=rho, service=1.0)
    for (r, c), value in np.ndenumerate(whole):
        t = [0.5, 14.0][c]
        assert value == queueing.deterministic_wait_exceedance(t, utilisation=rho[r, c], service=1.0)
    q = queueing.deterministic_wait_quantile(0.99, utilisation=rho, service=2.0)
    assert q.shape == (2, 2) and q[1, 1] == np.inf and q[0, 0] == 0
    assert queueing.priority_mean_wait(np.full((3, 2, 4), 0.1), np.ones((3, 1, 1)), np.ones((3, 1, 1))).shape == (
        3,
        2,
        4,
    )


@given(n=st.integers(1, 30), s=SECONDS, z=st.floats(1e-3, 1e3))
def test_slowed_loop_gives_thinking_what_service_leaves(n, s, z):
    """At the solution thinking takes z / (1 - u) and u is the share of time in service; alone nobody waits."""
    said = queueing.slowed_mean_sojourn(n, s, z)
    assert said >= queueing.closed_mean_sojourn(n, s, z / 1e-12, 0.0) * (1 - 1e-9)
    assert said <= queueing.closed_mean_sojourn(n, s, z, 0.0) * (1 + 1e-9)
    assert queueing.slowed_mean_sojourn(1, s, z) == pytest.approx(s)


def test_closed_queue_with_constant_service_by_simulation():
    """Three customers, S = 1 constant, think exponential of mean 2: 200,000 cycles with a seed, five blocks."""
    rng = np.random.default_rng(1)
    ready, free, waits = list(rng.exponential(2.0, 3)), 0.0, []
    for _ in range(200_000):
        first = int(np.argmin(ready))
        free = max(free, ready[first]) + 1.0
        waits.append(free - ready[first])
        ready[first] = free + rng.exponential(2.0)
    blocks = np.array(waits).reshape(5, -1).mean(axis=1)
    # the correction for the residual is an approximation, 11 % low here as its docstring says; without it: 13 % high
    assert blocks.std() < 0.01
    assert queueing.closed_mean_sojourn(3, 1.0, 2.0, 0.0) / blocks.mean() == pytest.approx(0.895, abs=0.01)
    assert queueing.closed_mean_sojourn(3, 1.0, 2.0, 1.0) / blocks.mean() == pytest.approx(1.134, abs=0.01)


def looked_at(rates, patience, jobs, seed):
    """Jobs of one second on average look at the work before them and join if it is below their patience: shares that
    join, their mean waits, mean work found, utilisation."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / np.sum(rates), jobs)
    kinds = rng.choice(len(rates), jobs, p=np.asarray(rates) / np.sum(rates))
    service, work, found, joined = rng.exponential(1.0, jobs), 0.0, np.zeros(jobs), np.zeros(jobs, bool)
    for i in range(jobs):
        work = max(work - gaps[i], 0.0)
        found[i], joined[i] = work, work < patience[kinds[i]]
        work += service[i] * joined[i]
    each = [(joined[kinds == k].mean(), found[(kinds == k) & joined].mean()) for k in range(len(rates))]
    return np.array(each).T, found.mean(), np.sum(service[joined]) / np.sum(gaps)


@pytest.mark.parametrize("load", [0.5, 1.0, 3.0])
def test_those_who_look_first_by_simulation(load):
    """Exponential service of one mean, for which the density is exact; three patiences. 400,000 jobs: shares within
    0.005 and times within 2 %."""
    rates, patience = load * np.array([0.5, 0.3, 0.2]), np.array([0.5, 4.0, 1.5])
    (joining, wait), mean, used = looked_at(rates, patience, 400_000, seed=3)
    law = queueing.balking_queue(rates, 1.0, patience)
    assert law.joining == pytest.approx(joining, abs=5e-3)
    assert law.wait == pytest.approx(wait, rel=0.02)
    assert law.mean_wait == pytest.approx(mean, rel=0.02)
    assert law.utilisation == pytest.approx(used, abs=5e-3)


@given(LOADS, SECONDS, SCVS)
def test_patience_without_end_is_the_plain_queue(rho, s, scv):
    residual = s * (1 + scv) / 2
    law = queueing.balking_queue([0.4 * rho, 0.6 * rho], residual, [1e5 * residual, 2e5 * residual])
    assert law.joining == pytest.approx(1.0, abs=1e-9)
    assert law.utilisation == pytest.approx(rho, rel=1e-9)
    assert law.mean_wait == pytest.approx(queueing.single_server_mean_wait(rho, s, scv), rel=1e-6)


@given(st.floats(0.0, 50.0), st.floats(1.0, 2.0), SECONDS, st.lists(st.floats(-1.0, 100.0), min_size=1, max_size=5))
def test_more_who_look_first_find_more_work(load, more, m, patience):
    offered = load * np.ones(len(patience)) / len(patience)
    low, high = (queueing.balking_queue(offered * factor, m, patience) for factor in (1.0, more))
    assert low.mean_wait <= high.mean_wait * (1 + 1e-9) and low.utilisation <= high.utilisation + 1e-9 <= 1 + 2e-9
    assert np.all(high.joining <= low.joining + 1e-9) and np.all(low.wait <= np.maximum(patience, 0.0))
    assert np.all(low.joining[np.less_equal(patience, 0.0)] == 0)


def test_queues_of_those_who_look_first_as_arrays_equal_scalars():
    offered, m, patience = np.array([[0.2, 3.0], [0.5, 1.0]]), np.array([1.0, 0.2]), np.array([[1.0, 5.0], [2.0, 0.1]])
    both = queueing.balking_queue(offered, m, patience)
    for k in range(2):
        one = queueing.balking_queue(offered[:, k], m[k], patience[:, k])
        assert np.allclose(both.joining[:, k], one.joining) and np.allclose(both.wait[:, k], one.wait)
        assert both.mean_wait[k] == pytest.approx(float(one.mean_wait))
        assert both.utilisation[k] == pytest.approx(float(one.utilisation))
    none = queueing.balking_queue([0.0], 0.0, [1.0])
    assert none.joining == 1.0 and none.wait == 0.0 and none.mean_wait == 0.0
