"""Models that mix attention with layers of constant state: delta nets, Mamba, lightning, short convolutions."""

from __future__ import annotations

from kvmodel.system.architectures.fields import MOST_LAYERS, Fields
from kvmodel.system.architectures.heads import (
    Layer,
    full_layer,
    hidden_size,
    kv_heads,
    layer_count,
    query_heads,
    sliding_layer,
)
from kvmodel.system.architectures.latents import sparse_layers


def _by_word(fields: Fields, name: str, words: list[str], shapes: dict[str, list[Layer]]) -> list[list[Layer]]:
    for word in words:
        if word not in shapes:
            raise fields.refuse(f"{name} lists {word!r}, a kind of layer this architecture is not known to have")
    return [shapes[word] for word in words]


def read_delta_net(fields: Fields) -> list[list[Layer]]:
    """Qwen3-Next and successors: every full_attention_interval-th layer is attention, unless layer_types says more."""
    layers = layer_count(fields)
    interval = fields.whole("full_attention_interval", default=4)
    words = fields.listing("layer_types", layers, extra=True) or [
        "full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(layers)
    ]
    state = {
        "kind": "gated_delta_net",
        "heads": fields.whole("linear_num_value_heads"),
        "key_heads": fields.whole("linear_num_key_heads"),
        "key_dim": fields.whole("linear_key_head_dim"),
        "value_dim": fields.whole("linear_value_head_dim"),
        "conv_kernel": fields.whole("linear_conv_kernel_dim"),
    }
    return _by_word(fields, "layer_types", words, {"full_attention": [full_layer(fields)], "linear_attention": [state]})


def read_kimi(fields: Fields) -> list[list[Layer]]:
    """KDA beside MLA, by the two lists of linear_attn_config; they count from 1 in some files and from 0 in others.

    Re-saved files have layer_types and the linear_* fields instead.
    """
    layers = layer_count(fields)
    if "linear_num_heads" in fields:
        return _read_kimi_resaved(fields, layers)
    linear = fields.nested("linear_attn_config")
    fields.ignore("layer_types")
    state_at = linear.listing("kda_layers")
    full_at = linear.listing("full_attn_layers")
    if state_at is None or full_at is None:
        raise linear.refuse("fields kda_layers and full_attn_layers are needed")
    listed = sorted([*state_at, *full_at])
    first = listed[0] if listed else 0
    if listed != list(range(first, first + layers)) or first not in (0, 1):
        raise linear.refuse(f"kda_layers and full_attn_layers do not cover the {layers} layers once each")
    width = linear.whole("head_dim")
    state = {
        "kind": "kda",
        "heads": linear.whole("num_heads"),
        "key_dim": width,
        "value_dim": width,
        "conv_kernel": linear.whole("short_conv_kernel_size"),
    }
    latent = sparse_layers(fields, [i - first for i in full_at], layers)
    return [latent.get(i, [state]) for i in range(layers)]


def _read_kimi_resaved(fields: Fields, layers: int) -> list[list[Layer]]:
    fields.ignore("linear_attn_config", "layer_group_size")
    words = fields.listing("layer_types", layers)
    if words is None:
        raise fields.refuse("field layer_types is missing")
    width = fields.whole("linear_head_dim")
    state = {
        "kind": "kda",
        "heads": fields.whole("linear_num_heads"),
        "key_dim": width,
        "value_dim": width,
        "conv_kernel": fields.whole("linear_conv_kernel_dim"),
    }
    attention = ("full_attention", "indexed_attention")
    latent = sparse_layers(fields, [i for i, word in enumerate(words) if word in attention], layers)
    if odd := set(words) - {"linear_attention", *attention}:
        raise fields.refuse(
            f"layer_types lists {sorted(map(str, odd))[0]!r}, a kind of layer this architecture is not known to have"
        )
    return [latent.get(i, [state]) for i in range(layers)]


def read_minimax(fields: Fields) -> list[list[Layer]]:
    """attn_type_list: 1 is softmax attention, 0 lightning attention; layer_types in re-saved files."""
    layers = layer_count(fields)
    full = full_layer(fields)
    state = {"kind": "lightning", "heads": query_heads(fields), "key_dim": full["k_dim"], "value_dim": full["k_dim"]}
    fields.ignore("sliding_window")
    shapes = {"full_attention": [full], "linear_attention": [state], "1": [full], "0": [state]}
    if (words := fields.listing("layer_types", layers)) is not None:
        fields.ignore("attn_type_list")
        return _by_word(fields, "layer_types", words, shapes)
    flags = fields.listing("attn_type_list", layers)
    if flags is None:
        if fields.model_type != "minimax_m2":
            raise fields.refuse("field attn_type_list is missing")
        return [[full] for _ in range(layers)]
    return _by_word(fields, "attn_type_list", [str(flag) for flag in flags], shapes)


def mamba1_layer(fields: Fields) -> Layer:
    inner = fields.whole("mamba_expand", "expand", default=2) * hidden_size(fields)
    return {
        "kind": "mamba1",
        "inner": fields.whole("d_inner", default=inner),
        "state": fields.whole("mamba_d_state", "state_size", "d_state"),
        "conv_kernel": fields.whole("mamba_d_conv", "conv_kernel", "d_conv", default=4),
    }


def mamba2_layer(fields: Fields) -> Layer:
    heads = fields.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    width = fields.get("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim")
    if width == "auto" or width is None:
        inner = fields.whole("mamba_d_ssm", default=fields.whole("mamba_expand", "expand") * hidden_size(fields))
        width, remainder = divmod(inner, heads)
        if remainder:
            raise fields.refuse(f"{inner} inner channels do not divide into {heads} Mamba heads")
    state = fields.whole("ssm_state_size", "mamba_d_state", "state_size")
    return {
        "kind": "mamba2",
        "heads": heads,
        "key_dim": width,
        "value_dim": state,
        "groups": fields.whole("n_groups", "mamba_n_groups", "mamba_ngroups"),
        "conv_kernel": fields.whole("conv_kernel", "mamba_d_conv"),
    }


def read_nemotron_h(fields: Fields) -> list[list[Layer]]:
    """hybrid_override_pattern letters (M Mamba-2, * attention, - feed-forward, E experts), or layers_block_type."""
    shapes: dict[str, list[Layer]] = {"M": [mamba2_layer(fields)], "*": [full_layer(fields)], "-": [], "E": []}
    words = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
    if (listed := fields.listing("layers_block_type")) is not None:
        fields.ignore("hybrid_override_pattern")
        pattern = [words.get(word, word) for word in listed]
    else:
        pattern = list(fields.get("hybrid_override_pattern", default=""))
    count = fields.whole("num_hidden_layers", default=len(pattern))
    if not pattern or len(pattern) != count:
        raise fields.refuse(f"hybrid_override_pattern describes {len(pattern)} layers but num_hidden_layers is {count}")
    return _by_word(fields, "hybrid_override_pattern", pattern, shapes)


def read_mamba_hybrid(fields: Fields) -> list[list[Layer]]:
    """Granite 4, Bamba: Mamba-2 and attention by layer_types, layers_block_type or attn_layer_indices."""
    layers = layer_count(fields)
    words = fields.listing("layer_types", layers) or fields.listing("layers_block_type", layers)
    if words is None:
        indices = fields.listing("attn_layer_indices")
        if indices is None:
            raise fields.refuse("field layer_types (or attn_layer_indices) is missing")
        words = ["attention" if i in indices else "mamba" for i in range(layers)]
    fields.ignore("layers_block_type", "attn_layer_indices")
    attention = [full_layer(fields)]
    shapes = {"attention": attention, "full_attention": attention}
    if {"mamba", "linear_attention"} & set(words):
        shapes["mamba"] = shapes["linear_attention"] = [mamba2_layer(fields)]
    return _by_word(fields, "layer_types", words, shapes)


def read_jamba(fields: Fields) -> list[list[Layer]]:
    """Attention at attn_layer_offset and every attn_layer_period-th layer after it, Mamba-1 elsewhere."""
    period, offset = fields.whole("attn_layer_period"), fields.whole("attn_layer_offset", least=0)
    attention, state = full_layer(fields), mamba1_layer(fields)
    fields.ignore("sliding_window", "layers_block_type", "layer_types")
    return [[attention] if i % period == offset else [state] for i in range(layer_count(fields))]


def read_zamba(fields: Fields) -> list[list[Layer]]:
    """Mamba in every layer; "hybrid" ones also run an attention block of shared weights with a cache of its own."""
    words = fields.listing("layers_block_type", layer_count(fields))
    if words is None:
        raise fields.refuse("field layers_block_type is missing")
    fields.ignore("hybrid_layer_ids", "attn_layer_period")
    wide = fields.whole("attention_hidden_size", default=2 * hidden_size(fields))
    width = fields.whole("attention_head_dim", default=wide // query_heads(fields))
    attention = {
        "kind": "full",
        "kv_heads": kv_heads(fields),
        "k_dim": width,
        "v_dim": width,
        "query_heads": query_heads(fields),
    }
    state = mamba1_layer(fields) if fields.model_type == "zamba" else mamba2_layer(fields)
    shapes = {"mamba": [state], "linear_attention": [state], "hybrid": [attention, state]}
    return _by_word(fields, "layers_block_type", words, shapes)


def read_recurrent_gemma(fields: Fields) -> list[list[Layer]]:
    """block_types repeats over the layers; an RG-LRU is stored like a Mamba-1 state of one element per channel."""
    words = fields.listing("block_types") or ["recurrent", "recurrent", "attention"]
    state = {
        "kind": "mamba1",
        "inner": fields.whole("lru_width", default=hidden_size(fields)),
        "state": 1,
        "conv_kernel": fields.whole("conv1d_width", default=4),
        "state_dtype": "f32",
    }
    window = sliding_layer(full_layer(fields), fields.whole("attention_window_size", default=2048))
    layers = layer_count(fields)
    return _by_word(
        fields,
        "block_types",
        [words[i % len(words)] for i in range(layers)],
        {"recurrent": [state], "attention": [window]},
    )


def read_falcon_h1(fields: Fields) -> list[list[Layer]]:
    """Every layer has attention and Mamba-2 side by side."""
    if set(fields.listing("layer_types") or ()) - {"hybrid"}:
        raise fields.refuse("layer_types lists layers other than 'hybrid', which this architecture does not have")
    return [[full_layer(fields), mamba2_layer(fields)] for _ in range(layer_count(fields))]


def read_mamba1(fields: Fields) -> list[list[Layer]]:
    fields.ignore("num_heads")
    return [[mamba1_layer(fields)] for _ in range(layer_count(fields))]


def read_mamba2(fields: Fields) -> list[list[Layer]]:
    return [[mamba2_layer(fields)] for _ in range(layer_count(fields))]


def read_mamba_ssm(fields: Fields) -> list[list[Layer]]:
    """Mamba's own library: ssm_cfg names the layer; what it leaves out has the library's values."""
    if fields.listing("attn_layer_idx"):
        raise fields.refuse("field attn_layer_idx adds attention layers, whose shape is not stated")
    ssm = fields.nested("ssm_cfg")
    width, kernel = fields.whole("d_model"), ssm.whole("d_conv", default=4)
    inner = ssm.whole("expand", default=2) * width
    if ssm.get("layer", default="Mamba1") == "Mamba1":
        layer = {"kind": "mamba1", "inner": inner, "state": ssm.whole("d_state", default=16), "conv_kernel": kernel}
    elif ssm.get("layer") == "Mamba2":
        head = ssm.whole("headdim", default=64)
        layer = {
            "kind": "mamba2",
            "heads": inner // head,
            "key_dim": head,
            "conv_kernel": kernel,
            "value_dim": ssm.whole("d_state", default=128),
            "groups": ssm.whole("ngroups", default=1),
        }
    else:
        raise ssm.refuse(f"field layer is {ssm.get('layer')!r}; known are 'Mamba1' and 'Mamba2'")
    return [[layer] for _ in range(fields.whole("n_layer", most=MOST_LAYERS))]


def read_lfm2(fields: Fields) -> list[list[Layer]]:
    """Short convolutions, with attention (full or windowed) at full_attn_idxs or where layer_types says so."""
    layers = layer_count(fields)
    words = fields.listing("layer_types", layers)
    indices = fields.listing("full_attn_idxs")
    if words is None:
        if indices is None:
            raise fields.refuse("field full_attn_idxs (or layer_types) is missing")
        words = ["full_attention" if i in indices else "conv" for i in range(layers)]
    state = {
        "kind": "short_convolution",
        "channels": fields.whole("conv_dim", default=hidden_size(fields)),
        "conv_kernel": fields.whole("conv_L_cache"),
    }
    full = full_layer(fields)
    shapes = {"full_attention": [full], "conv": [state]}
    if "sliding_attention" in words:
        shapes["sliding_attention"] = [sliding_layer(full, fields.whole("sliding_window"))]
    return _by_word(fields, "layer_types", words, shapes)
