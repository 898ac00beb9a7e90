"""Reads a Hugging Face config.json: which layers, of which shape, in which precision. Exact, or refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvmodel.errors import UnsupportedModelError, nearest
from kvmodel.system.architectures import READERS, Fields, Layer
from kvmodel.system.llm import Llm
from kvmodel.system.parameter_count import count_parameters

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_KIND_OF_WRAPPER = {
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "mllama": "mllama_text_model",
    "qwen3_vl": "qwen3_vl_text",
    "glm5_next": "glm5_next_text",
}
_LARGEST_FILE = 16 * 2**20
_NAMES_A_QUANTISATION = re.compile(r"fp8|fp4|int8|int4|awq|gptq|w4a|w8a", re.IGNORECASE)


def read_config(config: Mapping[str, Any], name: str = "") -> Llm:
    """The model a config.json describes.

    config  the parsed file; a nested text configuration is found by itself
    name    what to call the model; by default the file's own name for it
    An unknown architecture, a missing or contradictory field is refused by name (UnsupportedModelError).
    The cache precision is bf16 (fp16 where the model is); a checkpoint's own wish for a quantised cache is a
    choice of the engine, and is left to kv_dtype.
    """
    if not isinstance(config, Mapping):
        raise UnsupportedModelError(f"a config.json holds a mapping, found {type(config).__name__}")
    text, model_type = _text_part(config)
    fields = Fields(text, model_type)
    try:
        return _read(fields, config, text, name)
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError, IndexError) as error:
        raise fields.refuse(f"a field is not of the kind it should be ({error})") from None


def _read(fields: Fields, config: Mapping[str, Any], text: Mapping[str, Any], name: str) -> Llm:
    per_layer = READERS[fields.model_type](fields)
    fields.check_all_read()
    groups = collect(per_layer)
    if not groups:
        raise fields.refuse("no layer stores anything")
    dtype = str(_first(text, config, "torch_dtype", "dtype") or "bfloat16").removeprefix("torch.")
    counted = count_parameters(fields, config, per_layer)
    if _NAMES_A_QUANTISATION.search(name) and "weight_bytes" not in counted:
        counted["weight_dtype"] = ""  # the name says quantised, the file does not say how
    try:
        return Llm(
            name=name or str(config.get("_name_or_path") or fields.model_type),
            attention=groups,
            draft_attention=collect(draft_layers(fields, per_layer)),
            kv_dtype="fp16" if dtype == "float16" else "bf16",
            model_dtype="fp16" if dtype == "float16" else "bf16",
            state_dtype=_state_dtype(fields),
            hidden_layers=len(per_layer),
            max_context=fields.get(
                "max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "max_target_positions"
            ),
            **counted,
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise fields.refuse(f"{place}: {first['msg']}, found {first['input']!r:.80}") from None


def read_config_file(path: Path) -> Llm:
    """The model of a config.json, or of a directory that holds one."""
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise UnsupportedModelError(f"{file}: {file.stat().st_size} bytes is no config.json")
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnsupportedModelError(f"{file}: {error.strerror or error}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UnsupportedModelError(f"{file}: not JSON ({error})") from None
    except RecursionError:
        raise UnsupportedModelError(f"{file}: nested too deeply for a config.json") from None
    name = (
        path.resolve().name if path.is_dir() else (path.resolve().parent.name if path.stem == "config" else path.stem)
    )
    try:
        return read_config(config, name)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{file}: {error}") from None


def collect(per_layer: list[list[Layer]]) -> list[dict[str, Any]]:
    """Equal layers together, in order of first appearance, with the positions they stand at."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, layers in enumerate(per_layer):
        for layer in layers:
            groups.setdefault(tuple(layer.items()), []).append(position)
    return [{**dict(shape), "layers": len(at), "positions": tuple(at)} for shape, at in groups.items()]


def draft_layers(fields: Fields, per_layer: list[list[Layer]]) -> list[list[Layer]]:
    """The built-in draft's (MTP) layers: of the kind that grows, like the last such layer of the model."""
    count = fields.get("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)
    if not isinstance(count, int) or count <= 0:
        return []
    if count > len(per_layer):
        raise fields.refuse(f"num_nextn_predict_layers {count} is more than the {len(per_layer)} layers of the model")
    growing = [layers for layers in per_layer if any(layer["kind"] in ("full", "latent") for layer in layers)]
    if not growing:
        return []
    main = [layer for layer in growing[-1] if layer["kind"] in ("full", "latent")]
    indexers = [layer for layers in growing for layer in layers if layer["kind"] == "indexer"]
    return [[*main, *indexers[:1]]] * count


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    model_type = config.get("model_type")
    text = config
    for _ in range(3):
        part = next((text[p] for p in _TEXT_PARTS if isinstance(text.get(p), Mapping) and text[p]), None)
        if part is None:
            break
        text = {**{k: v for k, v in text.items() if k in ("vision_config", "tie_word_embeddings")}, **part}
    for named in (model_type, text.get("model_type")):
        if named is not None and not isinstance(named, str):
            raise UnsupportedModelError(f"field model_type must be a text, found {named!r:.80}")
    if text is not config:
        inner = text.get("model_type")
        if inner is None or (inner not in READERS and _KIND_OF_WRAPPER.get(model_type) in READERS):
            inner = _KIND_OF_WRAPPER.get(model_type, inner)
        model_type = inner or model_type
    elif model_type not in READERS and _KIND_OF_WRAPPER.get(model_type) in READERS:
        model_type = _KIND_OF_WRAPPER[model_type]
    if not model_type and "ssm_cfg" in config:  # checkpoints of Mamba's own library name no architecture
        model_type = "mamba_ssm"
    if not model_type:
        raise UnsupportedModelError("field model_type is missing, so the architecture is not known")
    if model_type not in READERS:
        raise UnsupportedModelError(
            f"unknown architecture: no layout is known for model_type {model_type!r}{nearest(str(model_type), READERS)}"
        )
    return text, model_type


def _first(*places: Any) -> Any:
    mappings, names = [p for p in places if isinstance(p, Mapping)], [p for p in places if isinstance(p, str)]
    return next((m[n] for m in mappings for n in names if m.get(n) is not None), None)


def _state_dtype(fields: Fields) -> str:
    """Precision of the recurrent state where the file states it; "" where it does not."""
    return str(fields.get("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default=""))
