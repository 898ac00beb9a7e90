"""The reader of config.json: all collected files exact, and refusals that name the field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.analyses.size import ENGINES, kv_size
from kvmodel.errors import KvmodelError, UnsupportedModelError
from kvmodel.presets import catalogue
from kvmodel.system.architectures import READERS
from kvmodel.system.config_json import read_config, read_config_file
from kvmodel.system.llm import Llm


def rows(readme: Path) -> list[tuple[str, int, str]]:
    """(file, growing bytes per token, remark) of the README's table."""
    found = []
    for line in readme.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 10 and cells[1].endswith(".json"):
            found.append((cells[1], int(cells[9].replace(",", "")), cells[10]))
    return found


def test_indexers_come_on_top_of_the_attention_they_serve(reference_data) -> None:
    """Remarks "N indexer layers x 128 on top" are bf16 index keys of N layers."""
    readme = reference_data("model_configs/README.md")
    for file, _, remark in rows(readme):
        if (found := re.match(r"(\d+) indexer layers x 128 on top", remark)) is not None:
            llm = read_config_file(readme.parent / file)
            index = sum(g.growing_bytes_per_token(llm.precision) for g in llm.attention if g.kind == "indexer")
            assert index == int(found[1]) * 128 * 2, file


def test_presets_equal_the_files_they_were_written_from(reference_data) -> None:
    folder = reference_data("model_configs/README.md").parent
    titles = 0
    for name in catalogue.names("llms"):
        source = catalogue.load("llms", name).sources.get("config")
        title = re.sub(r"^config.json of | \(class defaults\)$", "", source["title"]) if source else ""
        titles += "/" in title
        file = folder / title.replace("/", "__")
        for path in (f"{file}.json", f"{file}__class_defaults.json") if title else ():
            if Path(path).exists():
                own, read = Llm(**catalogue.load("llms", name).fields), read_config_file(Path(path))
                assert own.growing_bytes_per_token == read.growing_bytes_per_token, name
                assert own.fixed_bytes_per_sequence(8) == read.fixed_bytes_per_sequence(8), name
    assert titles > 50  # how the titles are written, which the names of the files follow


def test_parameter_counts_are_near_what_the_names_say(reference_data) -> None:
    """ "-70B" in a checkpoint's name, from 3 billion on: 25 %, names being round (Gemma-7B has 8.5). Llama 4 names the
    active parameters ("17B-16E")."""
    for file, _, _ in rows(readme := reference_data("model_configs/README.md")):
        said = re.search(r"-(\d+(?:\.\d+)?)B(?![A-Za-z0-9])(?!-\d+E)", file.split("__")[1], re.IGNORECASE)
        llm = read_config_file(readme.parent / file)
        if said is not None and float(said[1]) >= 3 and llm.parameters is not None:
            assert llm.parameters == pytest.approx(1e9 * float(said[1]), rel=0.25), file


PUBLISHED = [  # parameters of the model cards: file, total, active, within
    ("meta-llama__Meta-Llama-3.1-8B.json", 8.03e9, 8.03e9, 0.005),
    ("meta-llama__Meta-Llama-3.1-405B.json", 405.85e9, 405.85e9, 0.005),
    ("Qwen__Qwen3-235B-A22B.json", 235e9, 22e9, 0.02),
    ("Qwen__Qwen3-Coder-480B-A35B-Instruct.json", 480e9, 35e9, 0.02),
    ("deepseek-ai__DeepSeek-V3.json", 671e9, 37e9, 0.02),
    ("mistralai__Mixtral-8x7B-v0.1.json", 46.7e9, 12.9e9, 0.01),
    ("openai__gpt-oss-120b.json", 116.8e9, 5.7e9, 0.01),
    ("moonshotai__Kimi-K2-Instruct.json", 1.03e12, 32.6e9, 0.02),
    ("zai-org__GLM-4.5-Air.json", 106e9, None, 0.02),
    ("nvidia__Nemotron-H-56B-Base-8K.json", 56e9, 56e9, 0.02),
]


def test_parameter_counts_are_near_the_published_ones(reference_data) -> None:
    """Of the files at hand. The active count includes the embedding, which some cards leave out (gpt-oss: 5.1 of our
    5.7 B)."""
    folder = reference_data("model_configs/README.md").parent
    for name, total, active, within in PUBLISHED:
        if (folder / name).exists():
            llm = read_config_file(folder / name)
            assert llm.parameters == pytest.approx(total, rel=within), name
            assert active is None or llm.active_parameters == pytest.approx(active, rel=within), name


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 4096,
    "vocab_size": 1000,
}
QWEN_NEXT: dict[str, Any] = {
    **LLAMA,
    "model_type": "qwen3_next",
    "head_dim": 64,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "model_type"),
        ({**LLAMA, "model_type": "lama"}, "did you mean 'llama'"),
        ({**LLAMA, "num_hidden_layers": None}, "num_hidden_layers"),
        ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads 3 does not divide"),
        ({**LLAMA, "num_attention_heads": 7, "num_key_value_heads": 7}, "head_dim is missing"),
        ({**LLAMA, "num_hidden_layers": "four"}, "whole number"),
        ({**LLAMA, "num_hidden_layers": True}, "whole number"),
        ({**LLAMA, "num_hidden_layers": float("inf")}, "whole number"),
        ({**LLAMA, "layer_types": ["full_attention"] * 3}, "layer_types has 3 entries but num_hidden_layers is 4"),
        ({**LLAMA, "layer_types": ["full_attention", "magic"] * 2}, "'magic'"),
        ({**LLAMA, "layer_types": ["full_attention", "sliding_attention"] * 2}, "sliding_window is missing"),
        ({**LLAMA, "sliding_window": 128}, "neither layer_types nor a pattern"),
        ({**LLAMA, "kv_lora_rank": 512}, "kv_lora_rank announces latent attention"),
        ({**LLAMA, "index_topk": 2048}, "index_topk announces an indexer"),
        ({**LLAMA, "num_kv_shared_layers": 2}, "num_kv_shared_layers announces layers that share"),
        ({**QWEN_NEXT, "linear_num_value_heads": None}, "linear_num_value_heads"),
        (
            {"model_type": "deepseek_v3", "num_hidden_layers": 2, "num_attention_heads": 4, "qk_rope_head_dim": 64},
            "kv_lora_rank is missing",
        ),
        (
            {
                "model_type": "deepseek_v4",
                "num_hidden_layers": 1,
                "compress_ratios": [7],
                "head_dim": 512,
                "index_n_heads": 4,
                "qk_rope_head_dim": 64,
                "sliding_window": 128,
                "num_attention_heads": 8,
                "index_head_dim": 128,
                "index_topk": 9,
            },
            "compress_ratios lists 7",
        ),
        ({"model_type": "rwkv7", "num_hidden_layers": 2}, "unknown architecture"),
    ],
)
def test_refusals_name_the_field(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(words)):
        read_config(config)


@pytest.mark.parametrize(
    ("change", "growing", "fixed"),
    [
        ({}, 4 * 2 * 256 * 2, 0),
        ({"head_dim": 64}, 4 * 2 * 128 * 2, 0),  # the stated head_dim, not hidden / heads
        ({"num_key_value_heads": None}, 4 * 8 * 256 * 2, 0),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, 4 * 2 * 256 * 2, 0),
        (
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 3},
            3 * 2 * 256 * 2,
            64 * 2 * 256 * 2,
        ),
        ({"model_type": "mistral", "sliding_window": 64}, 0, 4 * 64 * 2 * 256 * 2),
        ({"model_type": "gemma2", "head_dim": 128, "sliding_window": 64}, 2 * 2 * 256 * 2, 2 * 64 * 2 * 256 * 2),
        ({"model_type": "cohere2", "sliding_window": 64}, 2 * 256 * 2, 3 * 64 * 2 * 256 * 2),
        (
            {"model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": "LLLG"},
            2 * 256 * 2,
            3 * 64 * 2 * 256 * 2,
        ),
        ({"model_type": "qwen3", "layer_types": ["full_attention"] * 5, "head_dim": 128}, 4 * 2 * 256 * 2, 0),
    ],
)
def test_schedules(change: dict[str, Any], growing: int, fixed: int) -> None:
    llm = read_config({k: v for k, v in {**LLAMA, **change}.items() if v is not None})
    assert (llm.growing_bytes_per_token, llm.fixed_bytes_per_sequence()) == (growing, fixed)


def test_nested_text_configuration_is_found() -> None:
    nested = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"num_hidden_layers": 99}}
    assert read_config(nested).attention == read_config(LLAMA).attention


@pytest.mark.parametrize(
    ("ssm", "expected"),
    [
        ({}, 64 * 5120 * (16 + 3)),  # ggml-org/llama.cpp#5328 counts the same elements
        ({"layer": "Mamba2"}, 64 * (80 * 64 * 128 + (5120 + 2 * 128) * 3)),
    ],
)
def test_original_mamba_files(ssm: dict[str, Any], expected: int) -> None:
    llm = read_config({"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": ssm})
    assert llm.fixed_bytes_per_sequence() == 2 * expected


def test_experts_stated_in_an_unknown_way_give_no_count() -> None:
    llm = read_config({**LLAMA, "num_experts": 8, "num_experts_per_tok": {"a": 1}})
    assert llm.parameters is None and llm.growing_bytes_per_token > 0


def test_layers_counted_from_one_or_from_zero() -> None:
    base = {**LLAMA, "model_type": "kimi_linear", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    linear = {"num_heads": 8, "head_dim": 128, "short_conv_kernel_size": 4}
    one = read_config({**base, "linear_attn_config": {**linear, "kda_layers": [1, 2, 3], "full_attn_layers": [4]}})
    zero = read_config({**base, "linear_attn_config": {**linear, "kda_layers": [0, 1, 2], "full_attn_layers": [3]}})
    assert one.attention == zero.attention
    with pytest.raises(UnsupportedModelError, match="do not cover"):
        read_config({**base, "linear_attn_config": {**linear, "kda_layers": [1, 2], "full_attn_layers": [4]}})


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", 0, 1, 4, "mamba"]), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = st.sampled_from(
    [
        *LLAMA,
        *QWEN_NEXT,
        "sliding_window",
        "layer_types",
        "kv_lora_rank",
        "text_config",
        "head_dim",
        "linear_attn_config",
        "block_configs",
        "hybrid_override_pattern",
        "quantization_config",
        "num_experts",
        "moe_intermediate_size",
        "attn_config",
        "attention_types",
        "dtype",
    ]
)


@given(
    model_type=st.sampled_from(sorted(READERS)),
    base=st.sampled_from([LLAMA, QWEN_NEXT]),
    changes=st.dictionaries(NAMES, VALUES, max_size=6),
)
def test_any_file_is_read_or_refused(model_type: str, base: dict[str, Any], changes: dict[str, Any]) -> None:
    try:
        llm = read_config({**base, **changes, "model_type": model_type})
    except UnsupportedModelError as error:
        assert str(error)
        return
    assert llm.growing_bytes_per_token >= 0 and llm.sequence_bytes(1000) >= 0


@given(data=st.data())
def test_any_change_to_a_published_file_is_read_or_refused(reference_data, data: st.DataObject) -> None:
    """Fields of the collected files dropped, doubled, negated or replaced; an engine may refuse what can be read."""
    files = sorted(reference_data("model_configs/README.md").parent.glob("*.json"))
    config = json.loads(data.draw(st.sampled_from(files)).read_text(encoding="utf-8"))
    text = next((config[part] for part in ("text_config", "llm_config") if isinstance(config.get(part), dict)), config)
    for name in data.draw(st.lists(st.sampled_from(sorted(text)), max_size=3, unique=True)):
        old = text[name]
        number = isinstance(old, (int, float))
        text[name] = data.draw(st.sampled_from([2 * old, -old, old + 1]) | VALUES if number else VALUES)
    try:
        llm = read_config(config)
        kv_size(llm, [1000], engine=data.draw(st.sampled_from(sorted(ENGINES))), memory=4e10, tp=2, max_model_len=4096)
    except KvmodelError as error:
        assert str(error)
        return
    assert llm.growing_bytes_per_token >= 0 and llm.sequence_bytes(1000) >= 0


def test_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (tmp_path / "tiny", tmp_path / "tiny" / "config.json"):
        assert read_config_file(path).name == "tiny"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[1]", b"[" * 100_000])
def test_broken_files_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UnsupportedModelError) as error:
        read_config_file(tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(UnsupportedModelError, match="No such file"):
        read_config_file(tmp_path / "none")
