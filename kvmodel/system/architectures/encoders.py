"""Models with cross attention: encoder-decoders and vision models whose decoder reads the image."""

from __future__ import annotations

from kvmodel.system.architectures.fields import MOST_LAYERS, Fields
from kvmodel.system.architectures.heads import Layer, full_layer, head_dim, layer_count


def _decoder(fields: Fields, heads: int, width: int, layers: int, encoder_tokens: int) -> list[list[Layer]]:
    shape = {"kv_heads": heads, "k_dim": width, "v_dim": width, "query_heads": heads}
    return [
        [{"kind": "full", **shape}, {"kind": "cross", "encoder_tokens": encoder_tokens, **shape}] for _ in range(layers)
    ]


def read_t5(fields: Fields) -> list[list[Layer]]:
    """Each decoder layer has self and cross attention; the encoder length is the class's n_positions."""
    fields.ignore("is_encoder_decoder")
    layers = fields.whole("num_decoder_layers", "num_layers", most=MOST_LAYERS)
    return _decoder(
        fields, fields.whole("num_heads"), fields.whole("d_kv"), layers, fields.whole("n_positions", default=512)
    )


def read_bart(fields: Fields) -> list[list[Layer]]:
    """Whisper, BART and kin: decoder_layers with self and cross attention; Whisper's encoder has 1,500 frames."""
    fields.ignore("is_encoder_decoder", "num_hidden_layers")
    heads, width = fields.whole("decoder_attention_heads"), fields.whole("d_model")
    if width % heads:
        raise fields.refuse(f"d_model {width} is not a multiple of decoder_attention_heads {heads}")
    return _decoder(
        fields,
        heads,
        width // heads,
        fields.whole("decoder_layers", most=MOST_LAYERS),
        fields.whole("max_source_positions", "max_position_embeddings"),
    )


def read_mllama(fields: Fields) -> list[list[Layer]]:
    """Llama 3.2 Vision: some layers only attend to the image's patches (all tiles of one image)."""
    layers = layer_count(fields)
    cross_at = fields.listing("cross_attention_layers")
    if cross_at is None:
        raise fields.refuse("field cross_attention_layers is missing")
    if set(cross_at) - set(range(layers)):
        raise fields.refuse(f"cross_attention_layers lists a layer beyond the {layers} of num_hidden_layers")
    vision = fields.nested("vision_config")
    side = vision.whole("image_size", default=560) // vision.whole("patch_size", default=14)
    patches = vision.whole("max_num_tiles", default=4) * (side * side + 1)
    full = full_layer(fields)
    head_dim(fields)
    cross = {**full, "kind": "cross", "encoder_tokens": patches}
    return [[cross] if i in cross_at else [full] for i in range(layers)]
