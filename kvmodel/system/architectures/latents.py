"""Layers with one latent vector per token: MLA, sparse MLA with its indexer, and DeepSeek-V4's compressed attention."""

from __future__ import annotations

from typing import Any

from kvmodel.system.architectures.fields import MOST_LAYERS, Fields
from kvmodel.system.architectures.heads import Layer, layer_count, query_heads


def latent_layer(fields: Fields) -> Layer:
    """One MLA layer. head_dim, where present, has nothing to do with the cache."""
    fields.ignore("q_lora_rank", "head_dim", "num_key_value_heads")
    rope = fields.whole("qk_rope_head_dim", least=0)
    return {
        "kind": "latent",
        "latent_dim": fields.whole("kv_lora_rank"),
        "rope_dim": rope,
        "query_heads": query_heads(fields),
        "k_dim": fields.whole("qk_nope_head_dim", least=0, default=0) + rope,
        "v_dim": fields.whole("v_head_dim", default=128),
    }


def indexer_layer(fields: Fields) -> Layer:
    return {
        "kind": "indexer",
        "dim": fields.whole("index_head_dim"),
        "pool": fields.whole("index_kpool", default=1),
        "query_heads": fields.whole("index_n_heads"),
    }


def sparse_layers(fields: Fields, positions: list[int], layers: int) -> dict[int, list[Layer]]:
    """MLA at the given positions, each with the indexer it owns: all own one unless indexer_types says "shared"."""
    latent = latent_layer(fields)
    if "index_topk" not in fields:
        return {i: [latent] for i in positions}
    latent = {**latent, "selected_tokens": fields.whole("index_topk")}
    fields.ignore("layer_types")  # "indexed_attention" in re-saved files says no more than index_topk
    types = fields.listing("indexer_types", layers, extra=True)
    if types is None and fields.get("index_topk_pattern"):
        raise fields.refuse("field index_topk_pattern is set, whose meaning is not known")
    if types is not None and (odd := set(types) - {"full", "shared"}):
        raise fields.refuse(f"indexer_types lists {sorted(map(str, odd))[0]!r}; known are 'full' and 'shared'")
    indexer = indexer_layer(fields)
    return {i: [latent, indexer] if types is None or types[i] == "full" else [latent] for i in positions}


def read_latent(fields: Fields) -> list[list[Layer]]:
    """Every layer is MLA."""
    layers = layer_count(fields)
    sources = fields.listing("kv_source_layers", layers)
    if sources is not None and sources != list(range(layers)):
        raise fields.refuse("field kv_source_layers names other layers, and which caches are shared then is not known")
    found = sparse_layers(fields, list(range(layers)), layers)
    return [found[i] for i in range(layers)]


def rotary_width(fields: Fields) -> int:
    """Rotary elements of an entry: stated, or as a factor of its width."""
    factor = fields.get("partial_rotary_factor")
    default = int(factor * fields.whole("head_dim")) if factor is not None else None
    return fields.whole("qk_rope_head_dim", default=default)


def read_longcat(fields: Fields) -> list[list[Layer]]:
    """LongCat-Flash: each of num_layers has two MLA attentions with a cache of their own."""
    blocks = fields.whole("num_layers", "num_hidden_layers", most=MOST_LAYERS // 2)
    return [[latent_layer(fields)] for _ in range(2 * blocks)]


def compress_ratios(fields: Fields, layers: int) -> list[Any]:
    """Ratio of each layer (0: window only); re-saved files name layers and give the ratio of each name."""
    ratios = fields.listing("compress_ratios", layers, extra=True)
    words = fields.listing("layer_types", layers, extra=True)
    if ratios is not None:
        return ratios
    if words is None:
        raise fields.refuse("field compress_ratios is missing")
    rates = {"sliding_attention": 0, **fields.get("compress_rates", default={})}
    if odd := sorted(map(str, set(words) - set(rates))):
        raise fields.refuse(f"layer_types lists {odd[0]!r}, for which compress_rates has no ratio")
    return [rates[word] for word in words]


def read_compressed(fields: Fields) -> list[list[Layer]]:
    """DeepSeek-V4: a ratio for each layer; one more entry is the draft layer's."""
    layers = layer_count(fields)
    ratios = compress_ratios(fields, layers)
    fields.ignore("q_lora_rank", "index_topk", "index_head_dim")
    if fields.whole("num_key_value_heads", default=1) != 1:
        raise fields.refuse("num_key_value_heads must be 1: keys and values are one shared vector")
    base = {
        "kind": "compressed",
        "dim": fields.whole("head_dim"),
        "rope_dim": rotary_width(fields),
        "window": fields.whole("sliding_window"),
        "query_heads": query_heads(fields),
    }
    shapes = {
        0: {**base, "ratio": 0},
        128: {**base, "ratio": 128},
        4: {
            **base,
            "ratio": 4,
            "index_dim": fields.whole("index_head_dim"),
            "index_heads": fields.whole("index_n_heads"),
            "selected_entries": fields.whole("index_topk"),
        },
    }
    for ratio in ratios:
        if ratio not in shapes:
            raise fields.refuse(f"compress_ratios lists {ratio!r}; known ratios are 0, 4 and 128")
    return [[shapes[ratio]] for ratio in ratios]
