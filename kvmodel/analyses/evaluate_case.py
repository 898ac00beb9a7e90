"""A measured case with what cannot be used taken out, so that the predictions need not ask again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Case = Mapping[str, Any]

TEXTS = ("source", "model", "dtype", "gpu", "tier", "note")
COUNTS = ("tokens_in", "tokens_out", "tp")
# parameters that predictions compute with; others, and loads, stay as they are stated
NUMBERS = (
    "kv_bytes_per_token",
    "kv_bytes",
    "kv_replication",
    "block_bytes",
    "flops",
    "recompute_ttft_s",
    "prefix_tokens",
    "peak_flops",
    "layers",
    "d",
    "gqa",
    "a",
    "b",
    "mfu",
    "kv_gib",
    "bandwidth_gibps",
    "overhead_s",
)


def cleaned(case: Case) -> dict[str, Any]:
    """The case with every field there is, None where it is not stated or not of its kind; numbers are positive."""
    params = {k: v for k, v in (case.get("params") or {}).items() if k not in NUMBERS or is_number(v)}
    share = case.get("hit_fraction")
    return {
        "id": str(case["id"]),
        "kind": str(case["kind"]),
        "params": params,
        **{name: case[name] if isinstance(case.get(name), str) else None for name in TEXTS},
        **{name: case[name] if is_number(case.get(name)) else None for name in COUNTS},
        "hit_fraction": share if share == 0 or (is_number(share) and share <= 1) else None,
        "measured": {k: v for k, v in (case.get("measured") or {}).items() if is_number(v)},
    }


def is_number(value: Any) -> bool:
    """Whether the value is a positive finite number (True is not 1)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
