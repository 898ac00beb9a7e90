"""Layers with keys and values per head: full, sliding, chunked, shared, and the schedules that mix them."""

from __future__ import annotations

import re
from typing import Any

from kvmodel.system.architectures.fields import MOST_LAYERS, Fields

Layer = dict[str, Any]

# What a class fills in when its published file leaves the field out. A class not listed has no default we rely on.
CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma2": {"sliding_window": 4096, "head_dim": 256},
    "gemma": {"head_dim": 256},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4},
    "llama4_text": {"attention_chunk_size": 8192, "head_dim": 128},
    "cohere2": {"sliding_window": 4096},
    "falcon": {"multi_query": True},
}
# Period of full layers where the class implies it: every p-th layer is full, the others look back a window.
IMPLIED_PATTERN = {
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3n_text": 5,
    "cohere2": 4,
    "olmo3": 4,
    "gpt_oss": 2,
    "gemma4_text": 6,
}
WINDOW_ON_ALL_LAYERS = {
    "mistral",
    "mixtral",
    "phi3",
    "starcoder2",
    "phimoe",
    "phi4mm",
    "phi4_multimodal",
    "ministral3",
    "voxtral_realtime_text",
}
OFF_UNLESS_USED = re.compile(r"qwen|mimo$|smollm")  # classes that ignore sliding_window unless use_sliding_window
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"


def layer_count(fields: Fields) -> int:
    return fields.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)


def query_heads(fields: Fields) -> int:
    default = CLASS_DEFAULTS.get(fields.model_type, {}).get("num_attention_heads")
    return fields.whole("num_attention_heads", "n_head", "n_heads", "num_heads", default=default)


def hidden_size(fields: Fields) -> int:
    return fields.whole("hidden_size", "n_embd", "d_model", "n_embed")


def kv_heads(fields: Fields) -> int:
    """KV heads of a layer; classes that say nothing have as many as query heads."""
    heads = query_heads(fields)
    defaults = CLASS_DEFAULTS.get(fields.model_type, {})
    if fields.model_type == "falcon":
        if not fields.flag("new_decoder_architecture") and fields.flag("multi_query", True):
            return 1
        return fields.whole("num_kv_heads", default=heads)
    if fields.model_type == "gpt_bigcode":
        return 1 if fields.flag("multi_query", True) else heads
    if fields.model_type in ("chatglm", "glm_chat"):
        return fields.whole("multi_query_group_num") if fields.flag("multi_query_attention") else heads
    if "attn_config" in fields:  # MPT, DBRX
        return fields.nested("attn_config").whole("kv_n_heads", default=heads)
    found = fields.whole(
        "num_key_value_heads",
        "num_kv_heads",
        "num_key_value_groups",
        "num_attention_groups",
        default=defaults.get("num_key_value_heads", heads),
    )
    if found > heads or heads % found:
        raise fields.refuse(f"num_key_value_heads {found} does not divide num_attention_heads {heads}")
    return found


def head_dim(fields: Fields, *names: str) -> int:
    """Stated width of a head; only when absent, hidden size over heads."""
    default = CLASS_DEFAULTS.get(fields.model_type, {}).get("head_dim")
    stated = fields.get(*names, "head_dim", "attention_head_dim", "kv_channels", default=default)
    if stated is not None:
        return fields.whole(*names, "head_dim", "attention_head_dim", "kv_channels", default=default)
    heads, width = query_heads(fields), hidden_size(fields)
    if width % heads:
        raise fields.refuse(
            f"field head_dim is missing and hidden_size {width} is not a multiple of num_attention_heads {heads}"
        )
    return width // heads


def full_layer(fields: Fields) -> Layer:
    width = head_dim(fields)
    return {
        "kind": "full",
        "kv_heads": kv_heads(fields),
        "k_dim": width,
        "v_dim": fields.whole("v_head_dim", default=width),
        "query_heads": query_heads(fields),
    }


def sliding_layer(layer: Layer, window: int) -> Layer:
    return {**layer, "kind": "sliding_window", "window": window}


def window_length(fields: Fields) -> int | None:
    """The window, or None where it is off."""
    default = CLASS_DEFAULTS.get(fields.model_type, {}).get("sliding_window")
    value = fields.get("sliding_window", "sliding_window_size", default=default)
    used = fields.flag("use_sliding_window", not OFF_UNLESS_USED.match(fields.model_type))
    if not used or value is None or value == 0:
        return None
    return fields.whole("sliding_window", "sliding_window_size", default=default)


def _pattern_words(fields: Fields, layers: int) -> list[str] | None:
    """Layer kinds implied by sliding_window_pattern or by the class."""
    pattern = fields.get(
        "sliding_window_pattern", "_sliding_window_pattern", default=IMPLIED_PATTERN.get(fields.model_type)
    )
    if pattern is None:
        return None
    if isinstance(pattern, str):
        if not pattern or set(pattern) - set("LG"):
            raise fields.refuse(f"field sliding_window_pattern must be made of L and G, found {pattern!r}")
        words = [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(layers)]
        return [*words[:-1], FULL]  # the last layer is always global
    period = fields.whole("sliding_window_pattern", "_sliding_window_pattern", default=pattern)
    return [FULL if (i + 1) % period == 0 else SLIDING for i in range(layers)]


def _implied_schedule(fields: Fields, layers: int, window: int | None) -> list[str]:
    if window is None:
        return [FULL] * layers
    if (words := _pattern_words(fields, layers)) is not None:
        if fields.model_type == "gpt_oss":  # alternates starting with the window
            return [SLIDING if i % 2 == 0 else FULL for i in range(layers)]
        return words
    if (first := fields.get("max_window_layers")) is not None and "use_sliding_window" in fields:
        return [SLIDING if i >= fields.whole("max_window_layers", least=0) else FULL for i in range(layers)]
    if fields.model_type in WINDOW_ON_ALL_LAYERS and first is None:
        return [SLIDING] * layers
    raise fields.refuse(f"sliding_window is {window} but neither layer_types nor a pattern says on which layers")


def read_decoder(fields: Fields) -> list[list[Layer]]:
    """Full and windowed layers of equal or stated shape, by layer_types or by the pattern the class implies."""
    layers = layer_count(fields)
    window = window_length(fields)
    full = full_layer(fields)
    fields.ignore("sliding_window_pattern", "max_window_layers")
    words = fields.listing("layer_types", layers, extra=True) or _implied_schedule(fields, layers, window)
    shapes = {FULL: full, "attention": full, "global_attention": full}
    if SLIDING in words:
        if window is None:
            raise fields.refuse("layer_types lists sliding_attention but field sliding_window is missing")
        shapes[SLIDING] = sliding_layer(_windowed_shape(fields, full), window)
    if CHUNKED in words:
        shapes[CHUNKED] = {**full, "kind": "chunked", "chunk": fields.whole("attention_chunk_size")}
    return [[_shape(fields, shapes, word)] for word in words]


def _windowed_shape(fields: Fields, full: Layer) -> Layer:
    """Shape of windowed layers; Step 3.5 states theirs apart."""
    if "attention_other_setting" not in fields:
        return full
    other = fields.nested("attention_other_setting")
    width = other.whole("head_dim", default=full["k_dim"])
    heads = other.whole("num_attention_heads", default=full["query_heads"])
    return {
        **full,
        "k_dim": width,
        "v_dim": width,
        "query_heads": heads,
        "kv_heads": other.whole("num_attention_groups", "num_key_value_heads", default=full["kv_heads"]),
    }


def _shape(fields: Fields, shapes: dict[str, Layer], word: Any) -> Layer:
    if word not in shapes:
        raise fields.refuse(f"layer_types lists {word!r}, a kind of layer this architecture is not known to have")
    return shapes[word]


def read_hunyuan(fields: Fields) -> list[list[Layer]]:
    """Equal layers; with use_cla the first of every cla_share_factor layers owns a cache and the others read it."""
    layers = read_decoder(fields)
    if not fields.flag("use_cla"):
        return layers
    factor = fields.whole("cla_share_factor")
    return [[own] if i % factor == 0 else [{**own, "kind": "shared"}] for i, [own] in enumerate(layers)]


def read_gemma(fields: Fields) -> list[list[Layer]]:
    """Gemma 3n and 4: full layers may have another shape, and the last layers may read an earlier layer's cache."""
    layers = layer_count(fields)
    window = window_length(fields)
    words = fields.listing("layer_types", layers) or _implied_schedule(fields, layers, window)
    local = full_layer(fields)
    shapes = {FULL: _global_shape(fields, local)}
    if window is not None:
        shapes[SLIDING] = sliding_layer(local, window)
    default = 15 if fields.model_type == "gemma3n_text" else 0
    shared = fields.whole("num_kv_shared_layers", default=default, least=0)
    if shared >= layers:
        raise fields.refuse(f"num_kv_shared_layers {shared} leaves none of {layers} layers to own a cache")
    changes = _changes_per_layer(fields)
    result = []
    for index, word in enumerate(words):
        layer = {**_shape(fields, shapes, word), **changes.get(index, {})}
        if index >= layers - shared:
            layer = {"window": 0, **layer, "kind": "shared"}
        result.append([layer])
    return result


def _global_shape(fields: Fields, local: Layer) -> Layer:
    """Full layers of Gemma 4. attention_k_eq_v shares a projection, not the cache: engines store keys and values."""
    if "per_layer_config" in fields or fields.model_type == "gemma3n_text":
        fields.ignore("global_head_dim", "num_global_key_value_heads")
        return local
    width = fields.whole("global_head_dim", default=512)
    heads = fields.whole("num_global_key_value_heads", default=local["kv_heads"])
    if not fields.flag("attention_k_eq_v"):  # the class then leaves the other head count aside
        heads = local["kv_heads"]
    return {**local, "kv_heads": heads, "k_dim": width, "v_dim": width}


def _changes_per_layer(fields: Fields) -> dict[int, Layer]:
    """per_layer_config of re-saved files: what differs from the common fields, by layer."""
    changes: dict[int, Layer] = {}
    for name, given in fields.get("per_layer_config", default={}).items():
        layer = Fields(given, f"{fields.model_type} per_layer_config[{name}]")
        known = {
            "head_dim": ("k_dim", "v_dim"),
            "num_key_value_heads": ("kv_heads",),
            "num_attention_heads": ("query_heads",),
            "sliding_window": ("window",),
        }
        if odd := sorted(set(given) - set(known)):
            raise layer.refuse(f"field {odd[0]} is not known to differ between layers")
        changes[int(name)] = {part: layer.whole(field) for field in given for part in known[field]}
    return changes


def read_llama4(fields: Fields) -> list[list[Layer]]:
    """Chunked layers where rotary embedding is used, full where it is not (every fourth by default)."""
    layers = layer_count(fields)
    full = full_layer(fields)
    if fields.listing("layer_types"):
        return read_decoder(fields)
    rotary = fields.listing("no_rope_layers") or []
    if not rotary:
        interval = fields.whole("no_rope_layer_interval", default=4)
        rotary = [int((i + 1) % interval != 0) for i in range(layers)]
    elif len(rotary) != layers:
        raise fields.refuse(f"field no_rope_layers has {len(rotary)} entries but num_hidden_layers is {layers}")
    chunk = fields.get("attention_chunk_size", default=CLASS_DEFAULTS["llama4_text"]["attention_chunk_size"])
    local = {**full, "kind": "chunked", "chunk": chunk}
    return [[local if flag else full] for flag in rotary]


def read_mimo_v2(fields: Fields) -> list[list[Layer]]:
    """hybrid_layer_pattern 1 is a window; windowed layers have their own heads and dims."""
    layers = layer_count(fields)
    pattern = fields.listing("hybrid_layer_pattern", layers)
    if pattern is None:
        raise fields.refuse("field hybrid_layer_pattern is missing")
    fields.ignore("attention_chunk_size")  # here the length of the window, not of a chunk
    full = full_layer(fields)
    window = window_length(fields)
    if window is None:
        raise fields.refuse("field sliding_window is missing")
    local = sliding_layer(
        {
            "kind": "full",
            "kv_heads": fields.whole("swa_num_key_value_heads", default=full["kv_heads"]),
            "k_dim": fields.whole("swa_head_dim", default=full["k_dim"]),
            "v_dim": fields.whole("swa_v_head_dim", default=full["v_dim"]),
            "query_heads": fields.whole("swa_num_attention_heads", default=full["query_heads"]),
        },
        window,
    )
    return [[local if flag else full] for flag in pattern]


def read_gpt_neo(fields: Fields) -> list[list[Layer]]:
    """attention_types: lists of (kinds, how often); local layers look back window_size tokens."""
    layers = layer_count(fields)
    words = [
        word
        for kinds, times in fields.get("attention_types", default=[])
        for _ in range(min(times, layers + 1))
        for word in kinds
    ]
    if len(words) != layers:
        raise fields.refuse(f"field attention_types describes {len(words)} layers but num_layers is {layers}")
    full = full_layer(fields)
    shapes = {"global": full, "local": sliding_layer(full, fields.whole("window_size", default=256))}
    return [[_shape(fields, shapes, word)] for word in words]


def read_block_configs(fields: Fields) -> list[list[Layer]]:
    """Nemotron NAS: each block states its group size, or that it has no attention."""
    blocks = fields.listing("block_configs", layer_count(fields))
    if blocks is None:
        raise fields.refuse("field block_configs is missing")
    fields.ignore("num_key_value_heads")
    heads, width = query_heads(fields), head_dim(fields)
    result: list[list[Layer]] = []
    for index, block in enumerate(blocks):
        attention = Fields(block.get("attention") or {}, f"{fields.model_type} block_configs[{index}].attention")
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            result.append([])
            continue
        group = attention.whole("n_heads_in_group")
        layer = {"kind": "full", "kv_heads": heads // group, "k_dim": width, "v_dim": width, "query_heads": heads}
        window = attention.get("window_length")
        result.append([sliding_layer(layer, window) if window else layer])
    return result


def read_minimax_m3(fields: Fields) -> list[list[Layer]]:
    """Grouped heads; sparse layers also keep an index key per token (and an index value unless disabled)."""
    sparse = fields.nested("sparse_attention_config")
    layers = layer_count(fields)
    full = full_layer(fields)
    if not sparse.flag("use_sparse_attention"):
        return [[full] for _ in range(layers)]
    flags = sparse.listing("sparse_attention_freq", layers)
    if flags is None:
        raise sparse.refuse("field sparse_attention_freq is missing")
    without_value = sparse.listing("sparse_disable_index_value", layers) or [0] * layers
    dim, heads = sparse.whole("sparse_index_dim"), sparse.whole("sparse_num_index_heads")
    return [
        [full, {"kind": "indexer", "dim": dim * (1 if bare else 2), "query_heads": heads}] if flag else [full]
        for flag, bare in zip(flags, without_value, strict=True)
    ]
