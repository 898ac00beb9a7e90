"""JSON Schemas generated from the records: one declaration per number, one schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from kvmodel.analyses.size_cases import SizeCaseFile
from kvmodel.results.table import COLUMNS
from kvmodel.study.schema import PRESET_PLACES, Study
from kvmodel.system.gpu import Gpu
from kvmodel.system.llm import Llm
from kvmodel.system.prices import Prices
from kvmodel.tiers import Tier
from kvmodel.tiers.path import Hop

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BASE = "https://kvmodel.example/schemas/"

# name -> (title, record or None for the result table)
SCHEMAS: dict[str, tuple[str, Any]] = {
    "study": ("A kvmodel study", Study),
    "llm": ("A model, as under `model:` or in a preset of family llms", Llm),
    "gpu": ("A GPU, as under `deployment.gpu:` or in a preset of family gpus", Gpu),
    "tier": ("A tier, as under `tiers:` or in a preset of family tiers or drives", Tier),
    "prices": ("A price list, as under `prices:` or in a preset of family prices", Prices),
    "path": ("A hop on a tier's path, as in `path:` of a tier or in a preset of family paths", Hop),
    "kv_size_cases": ("Observed KV-cache sizes, for `kvmodel evaluate`", SizeCaseFile),
    "result": ("The result of `kvmodel plan --json`", None),
}


def schema(name: str) -> dict[str, Any]:
    """JSON Schema of one kind of file (a key of SCHEMAS)."""
    title, record = SCHEMAS[name]
    if record is None:
        body = _result_schema()
    elif isinstance(record, type) and issubclass(record, BaseModel):
        body = record.model_json_schema()
    else:
        body = TypeAdapter(record).json_schema()
    if name == "study":
        _allow_presets(body)
    return {"$schema": DIALECT, "$id": f"{BASE}{name}.schema.json", **body, "title": title}


def _allow_presets(body: dict[str, Any]) -> None:
    """Where a preset may supply fields, none of them is required in the file itself."""
    records = {"model": "Llm", "deployment.gpu": "Gpu", "prices": "Prices", "tiers.*.path.*": "Hop"}
    for place in PRESET_PLACES:
        for name, definition in body["$defs"].items():
            is_tier = place == "tiers.*" and "host_addressable" in definition.get("properties", {})
            if is_tier or name == records.get(place):
                definition.pop("required", None)
                definition["properties"].setdefault("preset", {"type": "string"})


def _result_schema() -> dict[str, Any]:
    number = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}, {"type": "null"}]}
    columns = {name: {"type": "string"} for name in COLUMNS} | {"value": number}
    return {
        "type": "object",
        "required": ["about", "axes", "rows"],
        "properties": {
            "about": {"type": "object", "description": "Study, version, seed: what is needed to reproduce the result."},
            "axes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "size"],
                    "properties": {
                        "name": {"type": "string"},
                        "unit": {"type": "string"},
                        "size": {"type": "integer"},
                        "values": {"type": "array"},
                    },
                },
            },
            "rows": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": list(COLUMNS),
                    "properties": columns | {"p05": number, "p50": number, "p95": number},
                },
            },
        },
    }
