"""Break-even of a case: figures by hand, what must move which way, and what is kept apart from reuse."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.analyses import breakeven, breakeven_at_rate, breakeven_curves, handoff, streamed_decode, timing
from kvmodel.formulas import breakeven as formula
from kvmodel.results.breakeven_verdict import sentences
from kvmodel.study.breakeven import breakeven_table
from kvmodel.study.load import load_study
from kvmodel.system.case import Case
from tests.conftest import ROOT
from tests.studies import study

EXAMPLES = ROOT / "examples"


def case_of(**changes):
    return Case.model_validate(study(**changes).case_data)


def answers(case, prefix=20_000.0, **more):
    return {(a.tier, a.quantity): a.value for a in breakeven.evaluate(case, breakeven.Question(prefix, **more))}


def test_a_slow_disk_is_refused_with_the_bandwidth_that_would_do():
    """ai-dynamo/dynamo#6101: 2.4 GB in 40 s against 0.9 s of recompute; 2.4 / 0.9 = 2.67 GB/s."""
    loaded = load_study(EXAMPLES / "slow_disk_hit" / "study.yaml")
    table = breakeven_table(loaded)
    assert table.value("time.fetch", tier="disk") == pytest.approx(40)
    assert table.value("breakeven.bandwidth", tier="disk") == pytest.approx(2.4e9 / 0.9)
    assert table.value("breakeven.fetch_wins", tier="disk") == 0
    (said,) = sentences(table)
    assert said.startswith("disk: recompute.") and "60.0 MB/s" in said and "at least 2.67 GB/s" in said
    (faster,) = sentences(breakeven_table(loaded.with_scenario("just_enough")))
    assert faster.startswith("disk: fetch.")


def test_worked_example():
    """2 GiB at 20 GiB/s after 150 ms: 250 ms, which loses to 180 ms and wins against 2 s (method.md section 5)."""
    loaded = load_study(EXAMPLES / "worked_example" / "study.yaml")
    for scenario, recompute, wins in (("base", 0.18, 0), ("slow_recompute", 2.0, 1)):
        table = breakeven_table(loaded if scenario == "base" else loaded.with_scenario(scenario))
        assert table.value("time.fetch", tier="remote") == pytest.approx(0.25)
        assert table.value("time.recompute") == pytest.approx(recompute)
        assert table.value("breakeven.fetch_wins", tier="remote") == wins


def test_thresholds_flip_the_verdict():
    """Just beyond each threshold the other side wins."""
    case = case_of(tiers__dram__lookup="30 ms")
    found = answers(case)
    r = next(r for r in breakeven.restores(case, breakeven.Question(20_000.0)) if r.tier == "dram")
    shortest = found["dram", "breakeven.tokens_idle"]
    for factor, wins in ((0.99, False), (1.01, True)):
        assert (r.path.seconds(shortest * factor) < r.prefill.saved(shortest * factor)) == wins
    ahead = found["dram", "breakeven.queue_restores"]
    assert r.fetch + ahead * r.service <= r.saved < r.fetch + (ahead + 1) * r.service
    use = found["dram", "breakeven.utilisation"]
    assert r.fetch + use / (2 * (1 - use)) * r.service == pytest.approx(r.saved)


def test_small_operations_cost_cpu_and_large_ones_block():
    fields = {"tiers__nvme__seconds_per_copy": "10 us"}
    small = answers(case_of(**fields, tiers__nvme__largest_transfer="128 KiB"))
    large = answers(case_of(**fields, tiers__nvme__largest_transfer="8 MiB"))
    assert small["nvme", "path.copies"] == pytest.approx(64 * large["nvme", "path.copies"], rel=0.01)
    assert small["nvme", "path.copy_seconds"] == pytest.approx(64 * large["nvme", "path.copy_seconds"], rel=1e-6)
    assert small["nvme", "path.blocking"] * 64 == pytest.approx(large["nvme", "path.blocking"], rel=1e-6)
    whole = answers(case_of())["nvme", "path.blocking"]
    assert whole > large["nvme", "path.blocking"]


def test_splits_are_no_worse_than_either_end():
    for lookup in ("0 s", "50 ms", "10 s"):
        found = answers(case_of(tiers__nvme__lookup=lookup))
        ends = min(found["nvme", "time.fetch"], found["", "time.recompute"])
        assert found["nvme", "breakeven.split_seconds"] <= ends * (1 + 1e-9)
        assert (
            found["nvme", "breakeven.split_seconds"]
            <= found["nvme", "breakeven.serial_seconds"] * (1 + 1e-9)
            <= ends * 1.001
        )


def test_prefetch_accepted_is_not_ready_and_wrong_guesses_cost():
    found = answers(case_of(), lead=0.01, used=0.25)
    fetch = found["nvme", "time.fetch"]
    assert found["nvme", "prefetch.wait"] == pytest.approx(fetch - 0.01)
    assert found["nvme", "prefetch.waste"] == pytest.approx(3 * found["nvme", "path.bytes"])


def test_curves_move_the_right_way():
    curves = breakeven_curves.curves(case_of(), breakeven.Question(20_000.0, lead=0.05, deadline=0.1))
    load = {(a.tier, a.quantity): a.value for a in curves["load"].answers}
    queue = {(a.tier, a.quantity): a.value for a in curves["queue"].answers}
    for tier in ("dram", "nvme"):
        assert np.all(np.diff(load[tier, "breakeven.tokens_busy_path"]) > 0)
        assert np.all(np.diff(load[tier, "breakeven.tokens_busy_gpu"]) <= 0)
        assert np.all(np.diff(load[tier, "breakeven.tokens_all_counted"]) < 0)
        assert np.all(np.diff(load[tier, "breakeven.timely"]) <= 1e-12)
        assert np.all(load[tier, "breakeven.timely_prefetched"] >= load[tier, "breakeven.timely"])
        assert np.all(np.diff(queue[tier, "breakeven.tokens_behind_restores"]) > 0)
        assert np.all(np.diff(queue[tier, "breakeven.tokens_behind_prompts"]) <= 0)
    stores = {(a.tier, a.quantity): a.value for a in curves["stores"].answers}
    assert np.all(stores["nvme", "time.wait_before_stores"] <= stores["nvme", "time.wait_with_stores"] * (1 + 1e-12))
    assert np.all(stores["nvme", "time.store_wait"] >= stores["nvme", "time.wait_with_stores"] * (1 - 1e-12))


def test_a_burst_of_one_is_the_single_restore():
    case = case_of()
    burst = {
        (a.tier, a.quantity): a.value
        for a in breakeven_curves.curves(case, breakeven.Question(20_000.0))["burst"].answers
    }
    assert burst["dram", "time.fetch_burst"][0] == pytest.approx(answers(case)["dram", "time.fetch"])
    # mean of c at once: (c + 1)/2 services (method.md section 2.6)
    r = next(r for r in breakeven.restores(case, breakeven.Question(20_000.0)) if r.tier == "dram")
    assert burst["dram", "time.fetch_burst"][2] == pytest.approx(r.path.fixed + 2.5 * r.service)


def test_arrays_equal_scalars():
    whole = answers(case_of(), prefix=np.array([100.0, 5_000, 60_000]))
    for i, prefix in enumerate((100.0, 5_000, 60_000)):
        for key, value in answers(case_of(), prefix=prefix).items():
            np.testing.assert_allclose(np.broadcast_to(whole[key], 3)[i], value, rtol=1e-12)


@settings(max_examples=15)
@given(faster=st.floats(1.1, 50), prefix=st.floats(10, 1e5))
def test_a_faster_path_never_loses_what_a_slower_one_won(faster, prefix):
    slow = answers(case_of(tiers__dram__read_bandwidth=1e9), prefix=prefix)
    fast = answers(case_of(tiers__dram__read_bandwidth=1e9 * faster), prefix=prefix)
    assert fast["dram", "breakeven.fetch_wins"] >= slow["dram", "breakeven.fetch_wins"]
    assert fast["dram", "breakeven.tokens_idle"] <= slow["dram", "breakeven.tokens_idle"]
    assert fast["dram", "breakeven.bandwidth"] == pytest.approx(slow["dram", "breakeven.bandwidth"])


def test_streaming_is_not_pause_and_resume():
    """Every token waits for the slow link: a token costs at least a whole read of the context."""
    case = case_of()
    found = {(a.tier, a.quantity): a.value for a in streamed_decode.evaluate(case, 20_000.0)}
    path = timing.fetch_terms(case, "nvme")
    read = 20_000 * path.bytes_per_token / path.bandwidth
    assert found["nvme", "decode.step_streamed"] >= read > found["", "decode.step_in_hbm"]
    assert found["nvme", "decode.restore_pays_after"] == pytest.approx(
        path.seconds(20_000.0) / (found["nvme", "decode.step_streamed"] - found["", "decode.step_in_hbm"])
    )


def test_handoff_by_hand():
    """Llama-3.1-8B, bf16: 131,072 B per token; 20,000 tokens over 50 GB/s after 1 ms; every head copied at tp 16."""
    found = {a.quantity: a.value for a in handoff.evaluate(case_of(), 20_000.0, bandwidth=50e9, latency=1e-3)}
    assert found["handoff.bytes"] == 131_072 * 20_000
    assert found["handoff.seconds"] == pytest.approx(1e-3 + 131_072 * 20_000 / 50e9)
    assert found["handoff.layerwise_seconds"] < found["handoff.seconds"]
    wide = case_of(deployment__tensor_parallel=16, deployment__gpu__count=16)  # 8 KV heads on 16 ranks
    assert handoff.handed_bytes(wide, 1000.0) == 2 * 131_072 * 1000


def test_a_million_in_a_second():
    """Issue bar: 1e6 evaluations of the threshold in one call within a second; best of three on a shared machine."""
    rng = np.random.default_rng(0)
    fixed, per_token, linear, attention = rng.uniform(1e-6, 1, (4, 1_000_000)) * [[1.0], [1e-4], [1e-4], [1e-9]]

    def once():
        start = time.perf_counter()
        formula.break_even_tokens(fixed=fixed, per_token=per_token, linear=linear, attention=attention)
        return time.perf_counter() - start

    assert min(once() for _ in range(3)) < 1.0


def test_a_predicted_prefill_says_when_its_error_could_turn_the_verdict():
    """Recompute 1.5 times as long as the fetch: sure when measured, not at an assumed efficiency (factor 2)."""
    case = case_of()
    bandwidth = answers(case)["nvme", "breakeven.bandwidth"]
    near = answers(case_of(tiers__nvme__read_bandwidth=1.5 * bandwidth, tiers__nvme__count=1))
    assert near["nvme", "breakeven.fetch_wins"] == 1 and near["nvme", "breakeven.sure"] == 0
    assert near["dram", "breakeven.sure"] == 1
    table = breakeven_table(load_study(EXAMPLES / "slow_disk_hit" / "study.yaml").with_scenario("just_enough"))
    assert table.value("breakeven.sure", tier="disk") == 1  # its prefill is measured


def test_decode_of_few_sequences_reads_few_experts():
    """Mixtral: 2 of 8 experts of each layer at batch 1; all at a large batch."""
    case = case_of(model={"preset": "mixtral-8x7b-v0.1"})
    one, many = (timing.decode_lines(case, 0.0, b)[0, 0] for b in (1.0, 1000.0))
    assert many == pytest.approx(timing.decode_lines(case, 0.0)[0, 0])
    assert one == pytest.approx(many * case.model.active_parameters / case.model.parameters, rel=1e-6)


def test_efficiency_falls_with_tensor_parallelism_where_asked():
    """All-reduces of 32 layers x 2 x 4096 x 2 B, ring factor 2 (tp - 1)/tp, over 450 GB/s (Llama-3.1-8B on H100)."""

    def terms(tp, **more):
        return timing.prefill_terms(case_of(deployment__tensor_parallel=tp, deployment__gpu__count=tp, **more))

    plain, with_reduce = terms(4), terms(4, deployment__prefill__all_reduce=True)
    assert with_reduce.linear - plain.linear == pytest.approx(64 * 4096 * 2 * 1.5 / 450e9)
    assert terms(1, deployment__prefill__all_reduce=True).linear == terms(1).linear
    assert terms(8, deployment__prefill__all_reduce=True).linear * 8 > terms(1).linear


def test_chunks_cost_steps_and_rereading():
    """1,024-token chunks, 2 ms each: 2 ms / 1,024 per token; 131,072 B over 3.35 TB/s reread, half a chunk."""
    plain = timing.prefill_terms(case_of())
    chunked = timing.prefill_terms(
        case_of(deployment__prefill__chunk_tokens=1024, deployment__prefill__step_seconds=2e-3)
    )
    bandwidth = case_of().deployment.gpu.memory_bandwidth
    assert chunked.linear - plain.linear == pytest.approx(2e-3 / 1024)
    assert chunked.attention - plain.attention == pytest.approx(131_072 / bandwidth / 2048)


def test_states_and_windows_come_with_any_prefix():
    """Gemma 3 27B keeps windows beside its growing KV: they are moved as well, however short the prefix."""
    case = case_of(model={"preset": "gemma-3-27b"})
    path, windows = timing.fetch_terms(case, "dram"), case.model.fixed_bytes_per_sequence()
    assert windows > 0
    assert path.nbytes(1000.0) == pytest.approx(windows + 1000 * case.model.growing_bytes_per_token)
    assert path.fixed == pytest.approx(path.waiting + windows / path.bandwidth)
    found = answers(case)
    least = found["dram", "breakeven.bandwidth"]
    assert least * (found["", "time.recompute"] - path.waiting) == pytest.approx(path.nbytes(20_000.0))


def test_a_saturated_path_is_warned_of_and_turns_the_verdict():
    quiet = {
        a.quantity: a for a in breakeven_at_rate.evaluate(case_of(), breakeven.Question(20_000.0)) if a.tier == "nvme"
    }
    assert quiet["load.tier_utilisation"].value < 0.5 and not quiet["load.tier_utilisation"].flags
    assert quiet["breakeven.fetch_wins_at_rate"].value == 1
    assert quiet["breakeven.tokens"].value >= answers(case_of())["nvme", "breakeven.tokens_idle"]
    slow = case_of(tiers__dram__read_bandwidth="20 MB/s", tiers__dram__hidden=0)
    busy = {a.quantity: a for a in breakeven_at_rate.evaluate(slow, breakeven.Question(20_000.0)) if a.tier == "dram"}
    assert busy["breakeven.fetch_wins_at_rate"].value == 0
    assert (
        breakeven_at_rate.evaluate(
            case_of(tiers__dram={"kind": "dram", "read_bandwidth": 1e9}), breakeven.Question(20_000.0)
        )
        == []
    )


def test_warnings_near_and_beyond_saturation():
    assert breakeven_at_rate._warning("nvme", 0.5) == ()
    assert "95% busy" in breakeven_at_rate._warning("nvme", 0.95)[0]
    assert "1.20 times" in breakeven_at_rate._warning("nvme", 1.2)[0]
