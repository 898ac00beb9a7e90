"""From files to a resolved study: includes, config.json, precedence."""

from __future__ import annotations

import json

import pytest

from kvmodel.errors import StudyError
from kvmodel.study.load import load_study, parse_study
from tests.studies import STUDY


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def test_included_files_lie_below_the_study(folder):
    (folder / "measured.yaml").write_text(
        "deployment:\n  reserve: 7 GB\n  prefill: {constant: 99 ms}\nslo: {ttft: {p95: 9 s}}\n", encoding="utf-8"
    )
    (folder / "study.yaml").write_text("include: measured.yaml\n" + STUDY, encoding="utf-8")
    record = load_study(folder / "study.yaml").record
    assert record.deployment.reserve == 7e9  # only the included file says it
    assert record.deployment.prefill.constant == 0.010  # the study says otherwise
    assert record.slo.ttft.limit == 2.0


def test_later_includes_lie_over_earlier_ones(folder):
    for name, reserve in (("a", "5 GB"), ("b", "6 GB")):
        (folder / f"{name}.yaml").write_text(f"deployment: {{reserve: {reserve}}}\n", encoding="utf-8")
    (folder / "study.yaml").write_text("include: [a.yaml, b.yaml]\n" + STUDY, encoding="utf-8")
    assert load_study(folder / "study.yaml").record.deployment.reserve == 6e9


@pytest.mark.parametrize(
    ("include", "words"),
    [
        ("nowhere.yaml", "nowhere.yaml"),
        ("[1, 2]", "name of a YAML file"),
        ("nested.yaml", "may not include others"),
    ],
)
def test_a_bad_include_is_one_clear_message(folder, include, words):
    (folder / "nested.yaml").write_text("include: study.yaml\n", encoding="utf-8")
    (folder / "study.yaml").write_text(f"include: {include}\n" + STUDY, encoding="utf-8")
    with pytest.raises(StudyError, match=words):
        load_study(folder / "study.yaml")


def test_a_model_may_be_a_config_json(folder):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 131072,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = STUDY.replace("model: {preset: llama-3.1-8b}", "model: {config: config.json, kv_dtype: fp8}")
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    model = load_study(folder / "study.yaml").record.model
    assert model.growing_bytes_per_token == 65_536  # 2 x 32 layers x 8 heads x 128 x 1 byte
    assert model.parameters == pytest.approx(8.03e9, rel=1e-2)  # as published


def test_the_command_line_beats_the_scenario_beats_the_file(folder):
    scenarios = "scenarios: {small: {tiers.dram.capacity: 64 GiB, tiers.nvme.count: 7}}\n"
    (folder / "study.yaml").write_text(STUDY + scenarios, encoding="utf-8")
    study = load_study(folder / "study.yaml", {"tiers.dram.capacity": "1 TiB"})
    assert study.record.tiers["dram"].capacity == 2**40
    small = study.with_scenario("small").record
    assert (small.tiers["dram"].capacity, small.tiers["nvme"].count) == (2**40, 7)
    assert load_study(folder / "study.yaml").with_scenario("small").record.tiers["dram"].capacity == 64 * 2**30


def test_joined_scenarios_apply_in_order(folder):
    scenarios = "scenarios: {a: {tiers.nvme.count: 3, tiers.dram.capacity: 1 GiB}, b: {tiers.nvme.count: 4}}\n"
    (folder / "study.yaml").write_text(STUDY + scenarios, encoding="utf-8")
    record = load_study(folder / "study.yaml").with_scenario("a+b").record
    assert (record.tiers["nvme"].count, record.tiers["dram"].capacity) == (4, 2**30)


def test_parts_that_do_not_go_together_are_told_where_they_stand():
    """Two at once, each with its own line."""
    text = STUDY.replace("variants: 20,", "variants: 20, under: sytem2,").replace(
        "  nvme:", "  slow: {kind: hbm}\n  nvme:", 1
    )
    with pytest.raises(StudyError) as caught:
        parse_study(text, "s.yaml")
    lines = text.splitlines()
    for problem in caught.value.problems:
        assert problem.path.split(".")[-1] in lines[problem.line - 1]
    assert {p.path for p in caught.value.problems} == {"tiers", "workload.system.under"}
