"""Families beyond the collected files: published shapes read, and their sizes computed by hand.

Shapes are those of public config.json files or, where it says "class", of the defaults of transformers 5.24.0, whose
re-saved files name layers differently (linear_attention, indexed_attention, per_layer_config, compress_rates).
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvmodel.errors import UnsupportedModelError
from kvmodel.system.config_json import read_config

GQA = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
FIVE_TO_ONE = ["sliding_attention"] * 5 + ["full_attention"]
MLA = {
    "num_attention_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "hidden_size": 6144,
}
KDA = {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
MAMBA2 = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_head": 64,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
GEMMA4_E4B = {
    "model_type": "gemma4_text",
    "hidden_size": 2560,
    "num_hidden_layers": 42,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "num_kv_shared_layers": 18,
    "attention_k_eq_v": False,
    "layer_types": FIVE_TO_ONE * 7,
}

FAMILIES: list[tuple[str, dict[str, Any], float, float]] = [
    ("Gemma-4-E4B: 24 layers own a cache, 4 of them full", GEMMA4_E4B, 4 * 2 * 512 * 4, 20 * 2 * 256 * 4 * 512),
    (
        "Gemma-4-E4B, re-saved (class)",
        {
            **{k: v for k, v in GEMMA4_E4B.items() if k != "global_head_dim"},
            "per_layer_config": {f"{i:02d}": {"head_dim": 512} for i in range(5, 42, 6)},
        },
        4 * 2 * 512 * 4,
        20 * 2 * 256 * 4 * 512,
    ),
    (
        "Gemma 4 without attention_k_eq_v leaves the other head count aside (class)",
        {**GEMMA4_E4B, "num_global_key_value_heads": 1},
        4 * 2 * 512 * 4,
        20 * 2 * 256 * 4 * 512,
    ),
    (
        "Command-R7B: three windows of 4,096, then a full layer",
        {"model_type": "cohere2", **GQA, "num_hidden_layers": 32, "sliding_window": 4096, "sliding_window_pattern": 4},
        8 * 8 * 128 * 4,
        24 * 8 * 128 * 4 * 4096,
    ),
    (
        "Laguna-S-2.1: 12 full and 36 windowed layers of 8 KV heads",
        {
            "model_type": "laguna",
            "hidden_size": 3072,
            "num_hidden_layers": 48,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "sliding_window": 512,
            "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12,
        },
        12 * 4096,
        36 * 4096 * 512,
    ),
    (
        "Hunyuan-Large: every second layer reads its neighbour's cache",
        {"model_type": "hunyuan", **GQA, "num_hidden_layers": 64, "use_cla": True, "cla_share_factor": 2},
        32 * 4096,
        0,
    ),
    (
        "Hunyuan-A13B: use_cla is off",
        {"model_type": "hunyuan_v1_moe", **GQA, "num_hidden_layers": 32, "use_cla": False, "cla_share_factor": 2},
        32 * 4096,
        0,
    ),
    (
        "Step3: one KV group of 256",
        {
            "model_type": "step3_vl",
            "text_config": {
                "model_type": "step3_text",
                "hidden_size": 7168,
                "num_hidden_layers": 61,
                "num_attention_heads": 64,
                "num_attention_groups": 1,
                "head_dim": 256,
            },
        },
        61 * 256 * 4,
        0,
    ),
    (
        "LongCat-Flash: two MLA attentions in each of 28 layers",
        {"model_type": "longcat_flash", **MLA, "num_layers": 28},
        56 * 576 * 2,
        0,
    ),
    (
        "MiniCPM3-4B",
        {"model_type": "minicpm3", **MLA, "num_hidden_layers": 62, "kv_lora_rank": 256, "qk_rope_head_dim": 32},
        62 * 288 * 2,
        0,
    ),
    (
        "DeepSeek-V3.2, re-saved (class)",
        {
            "model_type": "deepseek_v32",
            **MLA,
            "num_hidden_layers": 61,
            "index_topk": 2048,
            "index_head_dim": 128,
            "index_n_heads": 64,
            "layer_types": ["indexed_attention"] * 61,
        },
        61 * (576 + 128) * 2,
        0,
    ),
    (
        "DeepSeek-V4-Flash, re-saved (class)",
        {
            "model_type": "deepseek_v4",
            "hidden_size": 4096,
            "num_hidden_layers": 4,
            "num_attention_heads": 64,
            "head_dim": 512,
            "partial_rotary_factor": 0.125,
            "sliding_window": 128,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 512,
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
            "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"] * 2,
        },
        2 * (640 * 2 / 4 + 512 * 2 / 128),
        4 * 128 * 1024 + 2 * (8 * 4 * 4 * 640 + 128 * 4 * 2 * 512),
    ),
    (
        "Kimi-Linear, re-saved (class)",
        {
            "model_type": "kimi_linear",
            **MLA,
            **KDA,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        576 * 2,
        3 * 32 * 128 * (128 * 4 + 3 * 3 * 2),
    ),
    (
        "Falcon-H1-7B: attention and Mamba-2 in each of 44 layers",
        {
            "model_type": "falcon_h1",
            "hidden_size": 3072,
            "num_hidden_layers": 44,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "mamba_d_conv": 4,
            "mamba_d_head": 128,
            "mamba_d_ssm": 3072,
            "mamba_d_state": 256,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 24,
        },
        44 * 2 * 128 * 4,
        44 * 2 * (24 * 128 * 256 + 3 * (3072 + 512)),
    ),
    (
        "Zamba2-7B: Mamba-2 everywhere, shared attention blocks at hybrid layers",
        {
            "model_type": "zamba2",
            "hidden_size": 3584,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "attention_hidden_size": 7168,
            "n_mamba_heads": 112,
            "mamba_headdim": 64,
            "mamba_ngroups": 2,
            "mamba_d_state": 64,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "layers_block_type": ["mamba", "mamba", "hybrid", "mamba"],
        },
        32 * 224 * 4,
        4 * 2 * (112 * 64 * 64 + 3 * (7168 + 256)),
    ),
    (
        "RecurrentGemma-2B: RG-LRU in f32, windows of 2,048 on every third layer",
        {
            "model_type": "recurrent_gemma",
            "hidden_size": 2560,
            "lru_width": 2560,
            "num_hidden_layers": 26,
            "num_attention_heads": 10,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "conv1d_width": 4,
            "attention_window_size": 2048,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
        0,
        18 * 2560 * (4 + 3 * 2) + 8 * 256 * 4 * 2048,
    ),
    (
        "Granite 4 H, re-saved (class)",
        {
            "model_type": "granitemoehybrid",
            **GQA,
            **MAMBA2,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        4096,
        3 * 2 * (128 * 64 * 256 + 3 * (8192 + 512)),
    ),
    (
        "Nemotron-H, re-saved (class)",
        {
            "model_type": "nemotron_h",
            **GQA,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
        },
        4096,
        2 * (128 * 64 * 128 + 3 * (8192 + 2048)),
    ),
    (
        "OLMo Hybrid (class)",
        {
            "model_type": "olmo_hybrid",
            "hidden_size": 3840,
            "num_hidden_layers": 4,
            "num_attention_heads": 30,
            "num_key_value_heads": 30,
            "linear_num_key_heads": 30,
            "linear_num_value_heads": 30,
            "linear_key_head_dim": 96,
            "linear_value_head_dim": 192,
            "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
        30 * 128 * 4,
        3 * 2 * (30 * 96 * 192 + 3 * (2 * 2880 + 5760)),
    ),
    (
        "LFM3 (class)",
        {
            "model_type": "lfm3",
            "hidden_size": 2048,
            "num_hidden_layers": 3,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "conv_L_cache": 7,
            "sliding_window": 256,
            "layer_types": ["conv", "sliding_attention", "full_attention"],
        },
        4 * 128 * 4,
        2048 * 6 * 2 + 4 * 128 * 4 * 256,
    ),
    (
        "Phi-4-mini: a window longer than the context on every layer",
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "sliding_window": 262_144,
            "max_position_embeddings": 131_072,
        },
        0,
        32 * 4096 * 262_144,
    ),
    (
        "Qwen3-Omni: the text part of the thinker",
        {
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "text_config": {
                    "model_type": "qwen3_omni_moe_text",
                    "hidden_size": 2048,
                    "num_hidden_layers": 48,
                    "num_attention_heads": 32,
                    "num_key_value_heads": 4,
                    "head_dim": 128,
                }
            },
        },
        48 * 4 * 128 * 4,
        0,
    ),
]


@pytest.mark.parametrize(
    ("config", "growing", "fixed"), [row[1:] for row in FAMILIES], ids=[row[0] for row in FAMILIES]
)
def test_sizes_by_hand(config: dict[str, Any], growing: float, fixed: float) -> None:
    llm = read_config(config)
    assert (llm.growing_bytes_per_token, llm.fixed_bytes_per_sequence()) == (growing, fixed)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        # no exact rule is known to us for what these fields announce
        ({"model_type": "bailing_moe_v2", **GQA, "num_hidden_layers": 20, "layer_group_size": 5}, "layer_group_size"),
        (
            {"model_type": "minicpm", **GQA, "num_hidden_layers": 32, "sparse_config": {"kernel_size": 32}},
            "sparse_config",
        ),
        (
            {"model_type": "mistral_large4_text", **MLA, "num_hidden_layers": 4, "kv_source_layers": [0, 0, 2, 2]},
            "kv_source_layers",
        ),
        (
            {"model_type": "llama", **GQA, "num_hidden_layers": 2, "per_layer_config": {"0": {"head_dim": 64}}},
            "per_layer_config",
        ),
        ({**GEMMA4_E4B, "per_layer_config": {"5": {"kv_lora_rank": 512}}}, "kv_lora_rank is not known to differ"),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 1, "layer_types": ["magic"], "compress_rates": {}},
            "'magic'",
        ),
        ({"model_type": "qwen4_exp_text", **GQA, "num_hidden_layers": 4}, "unknown architecture"),
        ({"model_type": "rwkv", "hidden_size": 4096, "num_hidden_layers": 32}, "unknown architecture"),
        ({"model_type": "llama", **GQA, "num_hidden_layers": 10**9}, "at most 10,000"),
        ({"model_type": ["llama"], **GQA}, "model_type must be a text"),
    ],
)
def test_what_has_no_exact_rule_is_refused_by_name(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(words)):
        read_config(config)
