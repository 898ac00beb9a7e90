"""What stands behind a reuse figure: definitions side by side, pinning, identity, warming up, survival, flags."""

from __future__ import annotations

import numpy as np
import pytest

from kvmodel.analyses import capacity, reuse_detail
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.reuse import hit_shares, streams_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.system.case import Case
from tests.studies import study

SMALL = {"tiers__dram__capacity": "64 GiB", "tiers__nvme__count": 1, "tiers__nvme__capacity": "100 GB"}
BURSTS = {"share": 0.2, "factor": 4.0, "mean_length": 600.0}
ONCE = {
    "kind": "sessions", "arrivals": "0.5 /s", "first_tokens": "3k tokens", "new_tokens": "10 tokens",
    "output_tokens": "100 tokens", "turns": 1, "pauses": {"none": {"share": 1, "exponential": {"mean": "10 s"}}},
}  # fmt: skip
DAY = [{"share": 0.3, "factor": 2.0}, {"share": 0.7, "factor": 0.5}]


def loaded(**changes):
    case = Case.model_validate(study(**{**SMALL, **changes}).case_data)
    return case, load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))


def resident(load):
    return float(sum(load.resident.values()).sum(axis=0) / load.prompt_rate)


def test_hit_ratios_by_every_definition():
    case, load = loaded()
    found = {(a.quantity, a.tier): float(a.value) for a in reuse_detail.hit_ratios(case, load, "all_tiers")}
    assert found["reuse.hit_ratio_tokens", ""] == pytest.approx(resident(load), abs=0.01)
    assert 0 < found["reuse.hit_ratio_blocks", ""] < found["reuse.hit_ratio_tokens", ""]
    missed = 1.0
    for tier in load.tiers:  # what is missed by one tier reaches the next
        missed *= 1 - found["reuse.hit_ratio_reached", tier]
    assert 1 - missed == pytest.approx(found["reuse.hit_ratio_tokens", ""], rel=1e-9)
    assert found["reuse.requests_with_hit", ""] >= found["reuse.hit_ratio_requests", ""]


def test_pinning_wins_for_its_prefix_and_costs_the_others():
    case, load = loaded(policy__pinned=["system"])
    change = {a.population: float(a.value) for a in reuse_detail.pinning(case, load, "all_tiers")}
    assert change["system"] >= 0 >= change["chat"]
    assert change[""] == pytest.approx(change["system"] + change["chat"])
    assert np.allclose(load.residency.prefix["chat"]["system"].sum(axis=0), 1.0)
    assert not list(reuse_detail.pinning(*loaded(), "all_tiers"))


def test_what_may_not_share_costs_reuse():
    case, load = loaded(workload__chat__identity={"adapter": 8, "weights": 1}, workload__chat__tenants=3)
    cost = {a.population: float(a.value) for a in reuse_detail.identity_cost(case, load, "all_tiers")}
    assert set(cost) == {"adapter", "tenants"} and min(cost.values()) > 0
    assert resident(load) + cost["adapter"] == pytest.approx(resident(loaded(workload__chat__tenants=3)[1]), abs=1e-3)


def test_a_cold_cache_warms_up_to_the_steady_state():
    case, load = loaded()
    found, warm = reuse_detail.warm_up_curve(case, load, "all_tiers").answers
    assert np.all(np.diff(found.value) >= 0) and 0 <= found.value[0] < 0.2
    offered = float(sum(load.opportunity.values()) / load.prompt_rate)
    assert found.value[-1] * offered == pytest.approx(resident(load), abs=0.01)
    assert 10 < warm.value < 3000  # pauses have medians of 10 s and 300 s


def test_survival_falls_with_the_pause():
    case, load = loaded()
    answers = reuse_detail.survival_curve(case, load, "all_tiers").answers
    assert [a.tier for a in answers] == list(load.tiers)
    for a in answers:
        assert np.all(np.diff(a.value) <= 1e-3) and a.value[-1] < 0.01


def test_doubts_are_flagged():
    assert reuse_detail.reuse_flags(*loaded()) == ()
    jumps = reuse_detail.reuse_flags(*loaded(policy__touch="head_first", workload__chat__new_tokens="300 tokens"))
    assert "sizes that do not vary" in jumps[0]
    few = reuse_detail.reuse_flags(*loaded(workload__chat__arrivals=None, workload__chat__agents=3))
    assert any("fewer than 3 agents" in flag for flag in few) and any("approximate" in flag for flag in few)
    varying = reuse_detail.reuse_flags(*loaded(workload__chat__day=DAY))
    assert "up to 2.11 times their mean" in varying[0]
    bursts = reuse_detail.reuse_flags(*loaded(workload__chat__bursts=BURSTS))
    assert "up to 4 times their mean" in bursts[0]


def test_a_day_is_averaged_over_sessions_not_replaced_by_its_mean():
    """Levels of 2.105 and 0.526 times the mean, years long: each as a study of its own, weighed by its sessions."""
    factors, weight = np.array([2.0, 0.5]) / 0.95, np.array([0.6, 0.35]) / 0.95
    each = [loaded(workload__chat__arrivals=0.2 * f)[1].residency.private["chat"][0] for f in factors]
    mixed = loaded(workload__chat__day=DAY, workload__chat__period=1e8)[1].residency.private["chat"][0]
    # active contexts are those of the mean rate in the mixture, so the pools differ a little
    assert float(mixed) == pytest.approx(float(weight @ np.array(each)), abs=0.03)


def test_bursts_lie_between_their_mean_rate_and_a_mixture():
    """Long bursts are a mixture of two studies, weighed by their sessions; short ones the study at the mean rate."""

    def private(**changes):
        case = Case.model_validate(study(**changes).case_data)
        return float(hit_shares(case, traffic_of(case, capacity.granularity(case)), 1.0, 1e6)["chat"][0])

    busy, calm = (private(workload__chat__arrivals=0.2 * f) for f in (4.0, (1 - 0.2 * 4.0) / 0.8))
    long, some, short = (
        private(workload__chat__bursts={**BURSTS, "mean_length": m}) for m in (1e8, BURSTS["mean_length"], 0.1)
    )
    assert short == pytest.approx(private(), abs=0.005)  # nodes of the paths
    assert long == pytest.approx(0.8 * busy + 0.2 * calm, abs=0.005)
    assert long + 0.01 < some < short - 0.01


def test_bursts_can_be_swept_and_followed_after_a_restart():
    lengths = np.array([10.0, 1e3, 1e5])
    case, load = loaded(workload__chat__bursts={**BURSTS, "mean_length": 10.0})
    bursts = case.workload["chat"].bursts.model_copy(update={"mean_length": lengths})
    chat = case.workload["chat"].model_copy(update={"bursts": bursts})
    swept = case.changed(workload={**case.workload, "chat": chat})
    traffic = traffic_of(swept, capacity.granularity(swept))
    private = load_of(swept, load.tiers, traffic).residency.private["chat"]
    assert np.allclose(private[:, 0], load.residency.private["chat"], rtol=1e-4) and np.all(np.diff(private[0]) < 0)
    found, _ = reuse_detail.warm_up_curve(case, load, "all_tiers").answers
    offered = float(sum(load.opportunity.values()) / load.prompt_rate)
    assert found.value[-1] * offered == pytest.approx(resident(load), abs=0.01)


def test_other_rules_take_bursts_too():
    _, load = loaded(workload__chat__bursts=BURSTS, policy__eviction="ideal")
    assert resident(loaded(workload__chat__bursts=BURSTS)[1]) <= resident(load) + 0.004


def test_deleting_finished_sessions_wins_what_their_kv_took():
    """What it would win is what the same study finds with everything deleted; nothing is left to win there."""
    case, load = loaded()
    won = {a.population: float(a.value) for a in reuse_detail.deletion(case, load, "all_tiers")}
    assert won[""] == pytest.approx(won["chat"] + won["system"]) and won["chat"] > 0.005
    tidy, all_gone = loaded(workload__chat__deleted=1.0)
    assert resident(load) + won[""] == pytest.approx(resident(all_gone), abs=0.01)  # fewer active tokens there
    assert not list(reuse_detail.deletion(tidy, all_gone, "all_tiers"))
    half = resident(loaded(workload__chat__deleted=0.5)[1])
    assert resident(load) < half < resident(all_gone)


def test_a_deleted_session_never_keeps_anyone_waiting_for_it():
    """Of a session that returns r times, r of r + 1 waits end; without its last, all of them."""
    (t,), (tidy,) = (loaded(workload__chat__deleted=share)[1].traffic for share in (0.0, 1.0))
    assert float(t.returning) == pytest.approx(7 / 8) and float(tidy.returning) == 1.0


def test_agents_arrive_as_often_as_their_pauses_allow():
    _, load = loaded(workload__chat__arrivals=None, workload__chat__agents=1200)
    (t,) = load.traffic
    assert float(t.arrivals) == pytest.approx(1200 / (8 * float(t.sessions.gap_law.mean)))
    assert 0 < resident(load) < 1


def test_ideal_eviction_bounds_lru_and_says_that_it_is_a_bound():
    lru, (case, load) = loaded()[1], loaded(policy__eviction="ideal")
    assert resident(lru) <= resident(load) + 0.004
    assert "upper bound" in reuse_detail.reuse_flags(case, load)[0]


@pytest.mark.parametrize(
    ("rule", "tier", "error"), [("fifo", "dram", 0.085), ("random", "nvme", 0.085), ("value_aware", "dram", 0.17)]
)
def test_rules_with_an_error_of_their_own_say_it_with_the_contexts_held(rule, tier, error):
    """8 GiB hold 65,536 tokens of 131,072 bytes, few contexts of the spread they have. The tier named is that
    with the largest error in the table of the page on reuse."""
    case, load = loaded(policy__eviction=rule, tiers__dram__capacity="8 GiB")
    (told,) = (flag for flag in reuse_detail.reuse_flags(case, load) if "contexts" in flag)
    assert told.startswith(f"{rule} eviction: {tier} holds ") and told.endswith(f"shared prefix: up to {error} off")


def test_tiers_without_a_common_stack_and_lifetimes_are_doubted():
    assert any("in 3 tiers" in flag for flag in reuse_detail.reuse_flags(*loaded(policy__eviction="fifo")))
    assert not any("tiers" in flag for flag in reuse_detail.reuse_flags(*loaded(policy__eviction="value_aware")))
    aged = loaded(policy__retention="10 min", policy__retention_renewed=False)
    assert "not renewed" in reuse_detail.reuse_flags(*aged)[0]


def test_survival_is_told_where_it_depends_on_the_pause_alone():
    assert reuse_detail.survival_curve(*loaded(policy__eviction="fifo"), "all_tiers") is None
    case, load = loaded(policy__eviction="value_aware", workload__batch=ONCE)
    chat = [a for a in reuse_detail.survival_curve(case, load, "all_tiers").answers if a.population == "chat"]
    plain = [a for a in reuse_detail.survival_curve(*loaded(workload__batch=ONCE), "all_tiers").answers
             if a.population == "chat"]  # fmt: skip
    # what never returns gives its room to what does
    assert chat[0].value[20] > plain[0].value[20]


def test_value_aware_counts_what_a_token_saves():
    """A token behind a longer prompt saves more attention, so it is worth more."""
    case, load = loaded(policy__eviction="value_aware", workload__batch=ONCE, model__preset="llama-3.1-70b",
                        deployment__tensor_parallel=2)  # fmt: skip
    streams = streams_of(case, load.traffic)
    worth = {t.name: (float(s.value), float(s.head_value)) for t, s in zip(load.traffic, streams, strict=True)}
    assert worth["chat"][0] > worth["chat"][1] > 0
    assert all(s.value == 1.0 for s in streams_of(loaded()[0], loaded()[1].traffic))
