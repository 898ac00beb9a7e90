"""Shared prefixes that nest, from the study to the reuse chain: what is told of each, and who uses which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvmodel.analyses import capacity, reuse_detail, value
from kvmodel.analyses.outcomes import NOWHERE, Outcomes, outcomes_of, timing_of, turn_classes
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.reuse import streams_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.timing import fetch_terms, prefill_terms
from kvmodel.analyses.traffic import traffic_of
from kvmodel.study.load import parse_study
from kvmodel.study.run import plan
from kvmodel.study.verify import verified
from kvmodel.system.case import Case
from tests.studies import STUDY

SMALL = {"tiers.dram.capacity": "48 GiB", "tiers.nvme.count": 1, "tiers.nvme.capacity": "100 GB"}
NESTED = """
  tools: {kind: shared_prefix, under: system, tokens: 1k tokens, variants: 3, popularity: {zipf: 0.5}}
  repository: {kind: shared_prefix, under: tools, tokens: 5k tokens, variants: 10, popularity: {zipf: 1},
               used_by: [chat]}
  short: {kind: sessions, arrivals: 0.1 /s, first_tokens: 300 tokens, new_tokens: 200 tokens, output_tokens: 100 tokens,
          turns: 3, pauses: {human: {lognormal: {median: 30 s, p90: 200 s}}}}
"""


def nested(**changes):
    text = STUDY.replace("slo:", NESTED.lstrip("\n") + "slo:", 1)
    return parse_study(text, "test.yaml", {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}})


def loaded(**changes):
    case = Case.model_validate(nested(**changes).case_data)
    return case, load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))


@pytest.fixture(scope="module")
def base():
    return loaded()


def test_a_population_has_the_deepest_prefix_it_uses(base):
    case, load = base
    assert [list(t.prefixes) for t in load.traffic] == [["system", "tools", "repository"], ["system", "tools"]]
    assert [float(t.prefix_tokens) for t in load.traffic] == [8_000.0, 3_000.0]
    assert case.texts("repository") == 20 * 3 * 10


def test_blocks_are_rounded_once_for_the_whole_chain(base):
    """Blocks of 16 tokens lose half a block at the end of the chain, none between: 8,000 - 8."""
    deep = base[1].traffic[0]
    assert [float(tokens) for tokens in deep.reusable_heads] == [1_992.0, 1_000.0, 5_000.0]


def test_parts_by_name_sum_to_the_totals():
    table = plan(nested())
    for arm in ("no_reuse", "local_reuse", "all_tiers"):
        for step in ("ceiling", "resident", "timely"):
            rows = table.select(quantity=f"reuse.{step}", arm=arm, tier="")
            parts = {row.population: float(row.value) for row in rows}
            total = parts.pop("")
            assert set(parts) == {"chat", "system", "tools", "repository", "short"}
            assert sum(parts.values()) == pytest.approx(total, rel=1e-9)
    kept = {row.population: float(row.value) for row in table.select(quantity="reuse.kept", arm="local_reuse")}
    assert kept["system"] >= kept["tools"] >= kept["repository"] > 0.0


def test_what_is_found_is_the_beginning_of_a_prompt(base):
    case, load = base
    o = outcomes_of(turn_classes(load.traffic, case.axes), load.traffic, load.residency)
    slower = np.where(o.place == NOWHERE, len(load.tiers), o.place)
    for i, t in enumerate(load.traffic):
        mine = o.population == i
        here = slower[3 - len(t.prefixes) :, mine]
        assert np.all(np.diff(here, axis=0) >= 0)
        assert np.all(o.tokens[: 3 - len(t.prefixes), mine] == 0.0)
        # and in each tier as often as the cache says, which places none of them twice
        for part, name in enumerate(t.prefixes):
            for k in range(len(load.tiers)):
                share = o.share[mine][here[part] == k].sum() / o.share[mine].sum()
                assert share == pytest.approx(float(load.residency.prefix[t.name][name][k]), abs=2e-3)
    assert o.share.sum() == pytest.approx(1.0)


def test_one_prefix_cut_in_two_changes_little_but_the_names():
    """2,000 tokens as 1,200 behind 800 with one variant each: totals as before, within the quadrature's 0.002."""
    whole = plan(parse_study(STUDY, "test.yaml", SMALL))
    half = {"kind": "shared_prefix", "under": "system", "tokens": "1200 tokens"}
    text = STUDY.replace("tokens: 2k tokens, variants: 20", "tokens: 800 tokens, variants: 20")
    cut = plan(parse_study(text.replace("slo:", f"  more: {half}\nslo:".replace("'", ""), 1), "test.yaml", SMALL))
    for quantity in (
        "reuse.ceiling",
        "reuse.resident",
        "reuse.timely",
        "latency.prefill_utilisation",
        "latency.ttft_mean",
    ):
        for arm in ("local_reuse", "all_tiers"):
            one, two = (table.value(quantity, arm=arm, tier="", population="") for table in (whole, cut))
            assert two == pytest.approx(one, abs=0.002, rel=0.005)


def test_pinned_inner_prefixes_stay_and_those_behind_compete():
    case, load = loaded(policy__pinned=["system", "tools"])
    for t in load.traffic:
        for name in ("system", "tools"):
            assert np.allclose(load.residency.prefix[t.name][name].sum(axis=0), 1.0)
    free = loaded()[1]
    assert [head.tokens for head in streams_of(case, load.traffic)[0].heads] == [0.0, 0.0, 5_000.0]
    deep = [float(one.residency.prefix["chat"]["repository"][0]) for one in (load, free)]
    assert 0.0 < deep[0] <= deep[1] + 0.002  # what the pinned ones hold is taken from it
    held = reuse_detail.pinned_tokens(case, load.traffic)
    assert {name: float(tokens) for name, tokens in held.items()} == {"system": 20 * 2_000.0, "tools": 60 * 1_000.0}
    change = {a.population: float(a.value) for a in reuse_detail.pinning(case, load, "all_tiers")}
    assert change["system"] >= 0.0 and change[""] == pytest.approx(sum(v for k, v in change.items() if k))


def test_all_pinned_needs_no_head_in_the_cache():
    pins, short = ["system", "tools", "repository"], "200 tokens"
    load = loaded(policy__pinned=pins, workload__repository__tokens=short)[1]
    free = loaded(workload__repository__tokens=short)[1]
    assert all(np.allclose(part.sum(axis=0), 1.0) for part in load.residency.prefix["chat"].values())
    assert float(load.residency.private["chat"][0]) < float(free.residency.private["chat"][0])


def test_groups_that_may_not_share_have_copies_of_the_whole_chain():
    load = loaded(workload__chat__tenants=4, workload__short__tenants=4)[1]
    found, alone = (one.residency.prefix["chat"] for one in (load, loaded()[1]))
    assert all(float(found[name][0]) < float(alone[name][0]) for name in found)


def test_the_simulation_agrees_with_each_prefix_by_name():
    """The bar of the project and three standard errors."""
    case = Case.model_validate(nested().case_data)
    rows: dict = {}
    for answer in verified(case, tiers_of(case, "local_reuse"), "local_reuse", turns=8_000):
        if answer.tier:
            key = (answer.population, answer.tier, answer.definition.split(",")[0])
            rows.setdefault(key, {})[answer.quantity] = answer.value
    assert len(rows) == 4 + 3
    for found in rows.values():
        off = abs(found["verify.closed_form"] - found["verify.simulated"])
        assert off <= 0.015 + 3 * found["verify.standard_error"]


def test_a_pin_is_judged_for_each_prefix_with_all_its_texts(base):
    case, load = base
    bytes_of = {
        (a.population, a.quantity): float(a.value)
        for a in value.evaluate(case, load)
        if a.tier == "dram" and a.population
    }
    assert 0 <= bytes_of["repository", "pin.variants"] <= 600 and 0 <= bytes_of["system", "pin.variants"] <= 20


def test_a_prefix_of_no_tokens_is_nothing_but_its_variants():
    table = plan(nested(workload__tools__tokens=0, compare=["all_tiers"]))
    assert table.value("reuse.ceiling", arm="all_tiers", tier="", population="tools") == 0.0
    assert table.value("reuse.kept", arm="all_tiers", population="repository") > 0.0


@pytest.mark.parametrize(("field", "values"), [("tokens", ["1k tokens", "4k tokens"]), ("popularity.zipf", [0.5, 1.1])])
def test_arrays_equal_scalars(field, values):
    """A number of an inner prefix over two values at once, and one by one."""
    path, arm = f"workload.tools.{field}", {"compare": ["local_reuse"]}
    many = plan(nested(sweep={path: values}, **arm))
    for i, one in enumerate(values):
        for row in plan(nested(**{path: one}, **arm)):
            if row.quantity in ("reuse.ceiling", "reuse.resident", "reuse.timely"):
                same = many.value(row.quantity, arm=row.arm, tier=row.tier, population=row.population)
                assert np.broadcast_to(same, (2,))[i] == pytest.approx(float(row.value), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("places", "runs", "used"),
    [
        ((1, 1, 1), [("dram", 8_000.0, 8_000.0)], 3),  # one fetch, hidden behind what is left to compute
        ((0, 0, 1), [("dram", 5_000.0, 8_000.0)], 3),
        ((0, 1, 2), [("dram", 1_000.0, 3_000.0), ("nvme", 5_000.0, 8_000.0)], 3),
        ((1, 1, 2), [("dram", 3_000.0, 3_000.0), ("nvme", 5_000.0, 8_000.0)], 3),
        ((0, 1, NOWHERE), [("dram", 1_000.0, 3_000.0)], 2),
    ],
)
def test_parts_in_one_tier_come_in_one_go(base, places, runs, used):
    """Tokens of each run and all tokens at its end; prompts so rare that nobody waits, the last of the outcomes."""
    case, load = base
    sizes = np.where(np.array(places) == NOWHERE, 0.0, [2_000.0, 1_000.0, 5_000.0])[:, None]
    o = Outcomes(*np.zeros((2, 1), int), np.array(places)[:, None], np.ones(1), np.full(1, 10_000.0), sizes)
    prefill, paths = prefill_terms(case), {tier: fetch_terms(case, tier) for tier in load.tiers[1:]}
    _, found = timing_of(case, o, load.tiers, prefill, paths, 1e-12)
    whole = prefill.seconds(10_000.0, 0.0)
    fetch = sum(paths[tier].seconds(run, compute=whole - prefill.saved(end)) for tier, run, end in runs)
    assert found.timely[:, -1].tolist() == [part < used for part in range(3)]
    assert float(found.work[-1]) == pytest.approx(float(whole - prefill.saved(sizes.sum())))
    assert float((found.service - found.work)[-1]) == pytest.approx(float(fetch))


def test_a_fetch_that_loses_stops_at_the_part_before_it(base):
    case, load = base
    o = Outcomes(*np.zeros((2, 1), int), np.array([[1], [1], [2]]), np.ones(1), np.full(1, 9e3), np.full((3, 1), 2e3))
    paths = {tier: fetch_terms(case, tier) for tier in load.tiers[1:]}
    paths["nvme"] = replace(paths["nvme"], fixed=10.0)
    _, found = timing_of(case, o, load.tiers, prefill_terms(case), paths, 1e-12)
    assert found.timely[:, -1].tolist() == [True, True, False] and float(found.saved[2, -1]) == 0.0
