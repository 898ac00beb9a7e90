"""Parameters and weight bytes derived from a config.json: close to the published counts, and called derived.

Counted: embeddings, attention and state projections, feed-forward layers and experts, routers, output head.
Left out: norms, biases, position tables, vision towers and draft layers, together under one percent for the
models checked. Where a needed width is missing the count is left out instead of guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvmodel.formulas.kv_size import element_bytes
from kvmodel.system.architectures import Fields, Layer

UNGATED = {
    "gpt2",
    "gpt_bigcode",
    "gptj",
    "gpt_neox",
    "gpt_neo",
    "codegen",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "starcoder2",
    "phi",
    "nemotron",
    "nemotron_h",
    "persimmon",
    "whisper",
    "bart",
    "mbart",
    "t5",
    "jais",
}
TIED_BY_CLASS = {
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "gpt2",
    "cohere",
    "cohere2",
    "t5",
    "bloom",
    "falcon",
    "mpt",
    "gpt_bigcode",
    "opt",
    "whisper",
    "bart",
    "mbart",
    "lfm2",
}


_EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


class Count(NamedTuple):
    """Parameters by what they are; `routed` are those of experts, of which a token uses the fraction `used`."""

    embedding: float
    head: float  # part of the embedding that is an output head of its own
    lookup: float  # tables of which a token reads one row per layer
    mixing: float
    dense: float
    routed: float
    used: float


class Experts(NamedTuple):
    """Experts of a layer as the fields state them."""

    experts: int
    per_token: int
    width: int
    shared_width: int


def count_parameters(fields: Fields, config: Mapping[str, Any], per_layer: list[list[Layer]]) -> dict[str, Any]:
    """Fields of the model record that follow from the file: counts, widths, experts, bytes of the weights."""
    hidden = fields.get("hidden_size", "n_embd", "d_model", "n_embed")
    vocabulary = fields.get("vocab_size")
    known = {"hidden_size": hidden, "vocabulary": vocabulary}
    experts = _experts(fields)
    if experts is None and _stated_experts(fields):  # experts we cannot count: no figure rather than a wrong one
        return {**known, "weight_dtype": ""}
    if experts:
        flags = _expert_layers(fields, len(per_layer))
        shared = experts.shared_width // experts.width if experts.width else 0
        known["moe"] = {
            "experts": experts.experts,
            "experts_per_token": experts.per_token,
            "shared_experts": shared,
            "layers": sum(flags),
        }
    count = _count(fields, config, per_layer, hidden, vocabulary, experts)
    if count is None:
        return {**known, "weight_dtype": ""}
    active = count.embedding + count.mixing + count.dense + count.routed * count.used
    total = count.embedding + count.lookup + count.mixing + count.dense + count.routed
    return {**known, "parameters": total, "active_parameters": active, **_weights(fields, config, count)}


def _count(
    fields: Fields,
    config: Mapping[str, Any],
    per_layer: list[list[Layer]],
    hidden: Any,
    vocabulary: Any,
    experts: Experts | None,
) -> Count | None:
    widths = _dense_widths(fields, len(per_layer))
    if not isinstance(hidden, int) or not isinstance(vocabulary, int) or widths is None:
        return None
    tied = fields.get("tie_word_embeddings", default=config.get("tie_word_embeddings"))
    tied = fields.model_type in TIED_BY_CLASS if tied is None else tied
    matrices = 2 if fields.model_type in UNGATED and not fields.get("is_gated_act") else 3
    mixing = sum(_mixing(fields, layer, hidden) for layers in per_layer for layer in layers)
    dense = routed = 0.0
    flags = _expert_layers(fields, len(per_layer)) if experts else [False] * len(per_layer)
    # experts that work in a narrower space than the residual stream (Nemotron 3 Super, Kimi-K3)
    inner = fields.get("moe_latent_size", "routed_expert_hidden_size", default=hidden)
    for flag, width in zip(flags, widths, strict=True):
        if flag and experts:
            routed += matrices * inner * experts.width * experts.experts
            dense += matrices * hidden * experts.shared_width + hidden * experts.experts
            dense += 2 * hidden * inner if inner != hidden else 0
            dense += matrices * hidden * width if fields.get("enable_moe_block") else 0
        else:
            dense += matrices * hidden * width
    used = experts.per_token / experts.experts if experts else 1.0
    embedding = vocabulary * hidden * (1 if tied else 2)
    per_layer_width = fields.get("hidden_size_per_layer_input", default=0)  # Gemma 3n and 4: a table for every layer
    lookup = fields.get("vocab_size_per_layer_input", default=vocabulary) * per_layer_width * len(per_layer)
    return Count(embedding, 0.0 if tied else embedding / 2, lookup, mixing, dense, routed, used)


def _mixing(fields: Fields, layer: Layer, hidden: int) -> float:
    """Projections of one attention or state layer."""
    kind = layer["kind"]
    if kind in ("full", "sliding_window", "chunked", "cross", "shared"):
        heads, k, v = layer["query_heads"], layer["k_dim"], layer["v_dim"]
        own = 0 if kind == "shared" else layer["kv_heads"] * (k + v)
        gate = heads * k if fields.get("attn_output_gate") or fields.model_type == "qwen3_next" else 0
        return hidden * (heads * (k + v) + own + gate)
    if kind == "latent":
        return _latent_projections(fields, layer, hidden)
    if kind == "indexer":
        query_from = fields.get("q_lora_rank", default=hidden)
        return layer["query_heads"] * (query_from * layer["dim"] + hidden) + hidden * layer["dim"]
    if kind == "compressed":
        return _compressed_projections(fields, layer, hidden)
    if kind == "gated_delta_net":
        keys, values = layer["key_heads"] * layer["key_dim"], layer["heads"] * layer["value_dim"]
        return hidden * (2 * keys + 3 * values + 2 * layer["heads"])
    if kind == "kda":
        width = layer["heads"] * layer["value_dim"]
        return 4 * hidden * width + 2 * (hidden + width) * layer["key_dim"] + hidden * layer["heads"]
    if kind == "lightning":
        return 5 * hidden * layer["heads"] * layer["value_dim"]
    if kind == "mamba2":
        inner = layer["heads"] * layer["key_dim"]
        return hidden * (3 * inner + 2 * layer["groups"] * layer["value_dim"] + layer["heads"])
    if kind == "mamba1":
        rank = fields.get("mamba_dt_rank", "time_step_rank", default=-(-hidden // 16))
        rank = rank if isinstance(rank, int) else -(-hidden // 16)
        return layer["inner"] * (3 * hidden + 2 * rank + 3 * layer["state"])
    return 4 * hidden * layer["channels"]  # short convolution: three inputs, one output


def _latent_projections(fields: Fields, layer: Layer, hidden: int) -> float:
    heads, rank, rope, v = layer["query_heads"], layer["latent_dim"], layer["rope_dim"], layer["v_dim"]
    low = fields.get("q_lora_rank")
    query = (hidden + heads * layer["k_dim"]) * low if low else hidden * heads * layer["k_dim"]
    gate = hidden * heads * v if fields.get("mla_use_output_gate") else 0
    return query + hidden * (rank + rope) + rank * heads * (layer["k_dim"] - rope + v) + heads * v * hidden + gate


def _compressed_projections(fields: Fields, layer: Layer, hidden: int) -> float:
    """Low-rank queries, one shared key-value projection, grouped low-rank output, compressors and indexer."""
    heads, dim, low = layer["query_heads"], layer["dim"], fields.get("q_lora_rank", default=0)
    out = fields.get("o_lora_rank", default=0)
    groups = fields.get("o_groups", default=1)
    overlap = 2 if layer.get("index_dim") else 1
    compressor = 2 * overlap * hidden * (dim + layer.get("index_dim", 0)) if layer["ratio"] else 0
    index = layer.get("index_heads", 0) * (low * layer.get("index_dim", 0) + hidden)
    return (hidden + heads * dim) * low + hidden * dim + heads * dim * out + groups * out * hidden + compressor + index


def _stated_experts(fields: Fields) -> bool:
    """Whether the file speaks of several experts at all."""
    number = fields.get(*_EXPERT_COUNTS, "ffn_config")
    return number > 1 if isinstance(number, int) else bool(number)


def _one(value: Any) -> Any:
    """The number behind a list of equal numbers, one per layer."""
    return value[0] if isinstance(value, list) and value and all(v == value[0] for v in value) else value


def _experts(fields: Fields) -> Experts | None:
    number = fields.get(*_EXPERT_COUNTS)
    chosen = _one(
        fields.get(
            "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_k", "moe_topk"
        )
    )
    width = _one(fields.get("moe_intermediate_size", "expert_intermediate_size", "intermediate_size"))
    if not all(isinstance(x, int) and x > 0 for x in (number, chosen, width)) or number < 2 or chosen > number:
        return None
    stated = fields.get(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
    )
    several = _one(
        fields.get("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert", default=0)
    )
    if fields.model_type == "llama4_text":
        several = 1
    shared = stated if isinstance(stated, int) else several * width if isinstance(several, int) else 0
    return Experts(number, chosen, width, shared)


def _expert_layers(fields: Fields, layers: int) -> list[bool]:
    """Which layers have experts, by whichever of the usual fields is there; all of them when none is."""
    if (pattern := fields.get("hybrid_override_pattern")) is not None:
        return [letter == "E" for letter in pattern]
    if (words := fields.get("layers_block_type")) is not None and fields.model_type == "nemotron_h":
        return [word == "moe" for word in words]
    if isinstance(words := fields.get("mlp_layer_types"), list):
        return [word == "sparse" for word in words[:layers]]
    frequency = fields.get(
        "moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1
    )
    if isinstance(frequency, list):
        return [bool(flag) for flag in frequency[:layers]]
    if (period := fields.get("expert_layer_period")) is not None:
        return [i % period == fields.get("expert_layer_offset", default=0) for i in range(layers)]
    first = fields.get("first_k_dense_replace", "moe_layer_start_index", default=0)
    without = fields.get("mlp_only_layers", default=[])
    shifted = fields.model_type in ("llama4_text", "qwen3_moe", "qwen2_moe", "qwen3_next")
    return [i >= first and i not in without and (i + shifted) % frequency == 0 for i in range(layers)]


def _dense_widths(fields: Fields, layers: int) -> list[float] | None:
    """Feed-forward width of each layer were it dense."""
    if (blocks := fields.get("block_configs")) is not None:
        hidden = fields.get("hidden_size", default=0)
        return [_nas_width((block.get("ffn") or {}), hidden) for block in blocks]
    width = fields.get(
        "intermediate_size_mlp",
        "dense_intermediate_size",
        "intermediate_size",
        "ffn_dim",
        "n_inner",
        "d_ff",
        "decoder_ffn_dim",
        "ffn_hidden_size",
        "block_ff_dim",
    )
    if fields.model_type == "lfm2" and isinstance(width, int) and fields.get("block_auto_adjust_ff_dim"):
        unit = fields.get("block_multiple_of", default=256)
        width = unit * -(-int(2 * width / 3 * fields.get("block_ffn_dim_multiplier", default=1)) // unit)
    if fields.model_type in ("mamba", "mamba2", "falcon_mamba"):
        width = 0  # the mixer is the whole block
    if width is None and fields.model_type in ("gpt2", "gpt_neox", "gptj", "codegen", "bloom", "falcon"):
        width = 4 * fields.get("hidden_size", "n_embd", default=0)
    if width is None and "moe_intermediate_size" in fields:
        width = fields.get("moe_intermediate_size")
    if isinstance(width, list):
        return [float(w) for w in width[:layers]]
    if not isinstance(width, int):
        return None
    if fields.model_type == "nemotron_h":
        words = fields.get("hybrid_override_pattern") or [
            "-" if word == "mlp" else "x" for word in fields.get("layers_block_type", default=[])
        ]
        return [width if word == "-" else 0 for word in words]
    return [width] * layers


def _nas_width(ffn: Mapping[str, Any], hidden: int) -> float:
    """Width from a block's multiplier: two thirds of it times hidden, rounded up to 256."""
    if ffn.get("no_op") or not ffn.get("ffn_mult"):
        return 0
    return 256 * -(-int(2 * ffn["ffn_mult"] * hidden / 3) // 256)


def _weights(fields: Fields, config: Mapping[str, Any], count: Count) -> dict[str, Any]:
    """Bytes of the weights: what is quantised by the file's own account, the rest in the model's precision."""
    quantised = config.get("quantization_config") or fields.get("quantization_config")
    parts = {
        "embedding": count.embedding + count.lookup,
        "mixing": count.mixing,
        "dense": count.dense,
        "routed": count.routed,
    }
    if not isinstance(quantised, Mapping):
        return {"weight_dtype": "bf16"}
    if quantised.get("quant_method") == "modelopt":
        return _modelopt_weights(quantised, {**parts, "embedding": parts["embedding"] - count.head, "head": count.head})
    method = quantised.get("quant_method")
    if method == "mxfp4":  # experts only
        name, kept = "mxfp4", ("embedding", "mixing", "dense")
    elif method == "fp8":
        name, kept = "fp8", ("embedding",)
    elif method == "compressed-tensors" and any("self_attn" in str(rule) for rule in quantised.get("ignore", ())):
        name, kept = (
            ("mxfp4" if "mxfp4" in str(quantised.get("format")) else "int4_group32"),
            ("embedding", "mixing", "dense"),
        )
    else:
        return {"weight_dtype": ""}
    routed = "mxfp4" if fields.get("expert_dtype") == "fp4" else name
    names = {part: "bf16" if part in kept else name for part in parts} | {"routed": routed}
    return {"weight_dtype": routed, "weight_bytes": sum(parts[p] * element_bytes(names[p]) for p in parts)}


_TARGET_WORDS = {"mixing": ("attn", "mixer"), "dense": ("mlp",), "routed": ("experts", "mlp"), "head": ("lm_head",)}


def _modelopt_weights(quantised: Mapping[str, Any], parts: dict[str, float]) -> dict[str, Any]:
    """Each part in the format of the group whose targets name it, unless it is ignored; the rest in bf16."""
    names = dict.fromkeys(parts, "bf16")
    ignored = " ".join(map(str, quantised.get("ignore") or ()))
    for group in (quantised.get("config_groups") or {}).values():
        weights, targets = group.get("weights") or {}, " ".join(map(str, group.get("targets") or ()))
        name = {(4, "float", 16): "nvfp4", (8, "float", None): "fp8"}.get(
            (weights.get("num_bits"), weights.get("type"), weights.get("group_size"))
        )
        if name is None:
            return {"weight_dtype": ""}
        for part, words in _TARGET_WORDS.items():
            every = "Linear" in targets and not any(word in ignored for word in words)
            if every or any(word in targets for word in words):
                names[part] = name
    if set(names.values()) == {"bf16"}:
        return {"weight_dtype": ""}
    return {"weight_dtype": "", "weight_bytes": sum(parts[part] * element_bytes(names[part]) for part in parts)}
