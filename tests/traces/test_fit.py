"""Workload records estimated from traces: known sessions are found again, and errors against exact curves
are as stated.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
import yaml
from typer.testing import CliRunner

from kvmodel.cli.fit import fit_command
from kvmodel.study.load import load_study
from kvmodel.study.run import plan
from kvmodel.traces import TraceError, read_trace
from kvmodel.traces.fit import fit_workload
from kvmodel.traces.fitted_laws import fitted_workload
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.recorded_curve import recorded_hit_ratio
from kvmodel.traces.session_records import session_records
from kvmodel.traces.stack_distance import stack_distances
from tests.studies import STUDY
from tests.traces import trace_oracle as oracle
from tests.traces.reference_traces import files_of


def conversations(sessions: int, turns: int) -> tuple[list[list[int]], list[int]]:
    """Requests and times [ms]: one shared head block, 10 own blocks at first and 5 more each turn, every
    60 s; session k starts at 7 k s.
    """
    rows = []
    for k in range(sessions):
        for turn in range(turns):
            own = range(1000 * (k + 1), 1000 * (k + 1) + 10 + 5 * turn)
            rows.append((7000 * k + 60_000 * turn, [0, *own]))
    rows.sort(key=lambda row: row[0])
    return [ids for _, ids in rows], [time for time, _ in rows]


@pytest.fixture
def trace(tmp_path):
    requests, times = conversations(50, 4)
    return read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", requests, times=times))


def test_sessions_are_recovered_from_the_tree_alone(trace):
    records = session_records(trace, run_stream(trace))
    assert records.starts.sum() == 50 and set(records.turns) == {4}
    assert set(records.pause_s[~records.starts]) == {60.0}
    assert set(records.new_tokens[~records.starts]) == {5 * 4 - 1}  # one token is the answer of the turn before
    assert set(records.head_tokens[1:]) == {4}


def test_a_rewritten_context_is_a_new_session(tmp_path):
    requests = [list(range(20)), list(range(25)), [*range(5), *range(100, 120)]]
    trace = read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", requests))
    assert session_records(trace, run_stream(trace)).parent.tolist() == [-1, 0, -1]


def test_workload_has_the_shape_of_a_study(trace):
    """All sessions alike: 50 of 4 turns, 11 blocks of 4 tokens at first (one is the head), 20 tokens more each turn."""
    fitted = fit_workload(trace)
    (name, agents), (_, head) = fitted["workload"].items()
    assert name == "several_short" and agents["kind"] == "sessions" and agents["turns"] == 4
    assert agents["first_tokens"] == pytest.approx(40, abs=0.1) and agents["output_tokens"] == 1
    assert agents["new_tokens"] == pytest.approx(19, abs=0.1)
    assert agents["pauses"] == {"all": {"share": 1.0, "constant": 60.0}}
    assert agents["arrivals"] == pytest.approx(50 / trace.duration_us * 1e6, rel=1e-3)
    assert head == {"kind": "shared_prefix", "tokens": pytest.approx(4, abs=0.1), "variants": 1}
    json.dumps(fitted, allow_nan=False)


def test_workload_passes_the_records_of_a_study(trace):
    from kvmodel.workloads.sessions import Sessions
    from kvmodel.workloads.shared_prefix import SharedPrefix

    workload = fit_workload(trace)["workload"]
    Sessions.model_validate(workload["several_short"])
    SharedPrefix.model_validate(workload["head"])


def test_laws_are_found_again(tmp_path):
    """Sizes and pauses drawn from known laws come back within a few standard errors."""
    rng = np.random.default_rng(5)
    rows = []
    for k in range(800):
        time, blocks = 10.0 * k, 1 + int(rng.lognormal(4.0, 0.5))
        for _ in range(3):
            rows.append((int(1000 * time), list(range(10_000 * (k + 1), 10_000 * (k + 1) + blocks))))
            time, blocks = time + rng.lognormal(3.0, 1.0), blocks + 1 + int(rng.lognormal(3.0, 0.7))
    rows.sort(key=lambda row: row[0])
    path = oracle.write_jsonl(tmp_path / "t.jsonl", [ids for _, ids in rows], times=[time for time, _ in rows])
    trace = read_trace(path)
    fitted = fitted_workload(trace, session_records(trace, run_stream(trace)))
    assert {kind.turns for kind in fitted.kinds} == {(3,)} and fitted.head_tokens == 0
    assert sum(kind.sessions for kind in fitted.kinds) == 800
    pauses = [float(kind.pause_law.mean) for kind in fitted.kinds]
    assert np.average(pauses, weights=[k.sessions for k in fitted.kinds]) == pytest.approx(np.exp(3.5), rel=0.15)
    largest = max(fitted.kinds, key=lambda kind: kind.sessions)
    assert float(largest.pause_law.quantile(0.5)) == pytest.approx(np.exp(3.0), rel=0.15)
    assert float(largest.growth_tokens.quantile(0.5)) == pytest.approx(4 * (np.exp(3.0) + 0.5), rel=0.15)


def test_recorded_curve_has_the_right_ends(tmp_path):
    """A context that does not fit never hits; with room for everything all returns do."""
    trace = read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", [list(range(100))] * 6))
    stream = run_stream(trace)
    ratio = recorded_hit_ratio(trace, stream, stack_distances(stream).previous, np.array([99, 10_000]))
    assert ratio[0] == 0 and ratio[1] == pytest.approx(5 / 6, abs=1e-3)


BARS = {"mooncake_conversation": (0.01, 0.005), "mooncake_synthetic": (0.015, 0.01)}
ANY_TRACE = (0.05, 0.015)
MANY_REQUESTS = 2000  # fewer are one draw of their laws, and their curve differs from the mean one


def test_errors_against_the_exact_curves(reference_data):
    """Bars of the project, for recorded contexts and pauses and for the workload section alone."""
    for name, (path, expected) in files_of(reference_data("traces/ground_truth.json"), "block_accesses").items():
        comparison = fit_workload(read_trace(path))["comparison"]
        largest, mean = BARS.get(name, ANY_TRACE) if expected["requests"] >= MANY_REQUESTS else (0.3, 0.1)
        for way in ("records", "laws"):
            assert comparison[way]["largest_error"] <= largest, (name, way)
            assert comparison[way]["mean_error"] <= mean, (name, way)


def test_kinds_of_pauses_of_session_files(reference_data):
    """Against the pauses of the main threads (ground truth): in the public file medians of 9 s after a tool call and
    233 s after a turn of the human."""
    for name, (path, expected) in files_of(reference_data("traces/ground_truth.json"), "sessions").items():
        populations = fit_workload(read_trace(path))["workload"].values()
        both = [p["pauses"] for p in populations if set(p.get("pauses", ())) == {"tool", "human"}]
        tool, human = (expected["main_thread"][f"{kind}_gap_s"] for kind in ("tool", "human"))
        shares = [pauses["human"]["share"] for pauses in both]
        assert np.median(shares) == pytest.approx(human["n"] / (human["n"] + tool["n"]), abs=0.03), name
        middle = (tool["p50"] * human["p50"]) ** 0.5
        for pauses in both:
            if not all("empirical" in pause for pause in pauses.values()):
                continue  # few pauses have a named law
            medians = {kind: pause["empirical"]["quantiles"][10] for kind, pause in pauses.items()}
            assert medians["tool"] < middle < medians["human"], name


def test_what_cannot_be_fitted_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n")
    with pytest.raises(TraceError, match="without block ids"):
        fit_workload(read_trace(tmp_path / "a.csv"))
    with pytest.raises(TraceError, match="no request continues another"):
        fit_workload(read_trace(oracle.write_jsonl(tmp_path / "t.jsonl", [[1], [2], [3]])))


def test_command_prints_a_section_to_paste(tmp_path):
    requests, times = conversations(30, 3)
    path = oracle.write_jsonl(tmp_path / "t.jsonl", requests, times=times)
    app = typer.Typer()
    app.command()(fit_command)
    printed = CliRunner().invoke(app, [str(path)]).stdout
    assert yaml.safe_load(printed)["workload"]["few_short"]["kind"] == "sessions"
    assert "largest difference" in printed
    assert "comparison" in json.loads(CliRunner().invoke(app, [str(path), "--json"]).stdout)


def test_fitted_study_is_planned(tmp_path):
    """A study with its workload replaced by a trace's is a study."""
    requests, times = conversations(30, 3)
    path = oracle.write_jsonl(tmp_path / "t.jsonl", requests, times=times)
    (tmp_path / "base.yaml").write_text(STUDY)
    app = typer.Typer()
    app.command()(fit_command)
    words = [str(path), "--study", str(tmp_path / "base.yaml"), "-o", str(tmp_path / "fitted.yaml")]
    assert CliRunner().invoke(app, words).exit_code == 0
    found = plan(load_study(tmp_path / "fitted.yaml"))
    # head of 4 in all prompts; later prompts of 44 + 20 and 44 + 40 tokens hold 41 and 61 of their own already known
    assert 0.4 < found.value("reuse.ceiling", arm="all_tiers", tier="", population="") < 0.7
