"""Terms of the prefill and the transfer law from measured points, with what they miss.

Question answered: which numbers should a study use for this engine and this path, and how far off are they?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.errors import KvmodelError
from kvmodel.formulas import calibration

FLAT = 1e-6  # growth over all sizes, as a share of the shortest time, below which there is none


@dataclass(frozen=True)
class Calibration:
    """Fitted terms as the fields of a study, and the errors of the fit."""

    fields: Mapping[str, tuple[float, str]]
    """Field name to value and unit."""
    fit: calibration.Fit
    notes: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[float, float]:
        """Median and p90 of the absolute errors of points predicted by fits without them; nan with too few points."""
        errors = np.abs(self.fit.left_out[np.isfinite(self.fit.left_out)])
        return (float(np.median(errors)), float(np.quantile(errors, 0.9))) if errors.size else (np.nan, np.nan)


def prefill(points: Mapping[str, Sequence[float]]) -> Calibration:
    """constant + linear (n - p) + attention (n^2 - p^2) from tokens, cached_tokens, seconds and concurrency."""
    lengths = len(set(zip(points["tokens"], points["cached_tokens"], strict=True)))
    if lengths < 3:
        raise KvmodelError(
            f"{lengths} different length{'s' * (lengths != 1)} of prompt: three terms need at least three"
        )
    found = calibration.prefill_fit(
        points["tokens"], points["cached_tokens"], points["seconds"], concurrency=points["concurrency"]
    )
    notes = []
    if min(points["concurrency"]) > 1:
        notes.append("no point at concurrency 1: the terms rest on how simultaneous prompts are assumed to wait")
    elif max(points["concurrency"]) > 1:
        notes.append(
            "points at concurrency above 1 are taken as prompts sent together; beside long outputs they wait less"
        )
    longest = max(points["tokens"])
    if longest * (found.linear + found.attention * longest) < FLAT * min(points["seconds"]):
        raise KvmodelError("the times do not grow with the tokens: there is no prefill in these points")
    fields = {
        "constant": (float(found.constant), "s"),
        "seconds_per_token": (float(found.linear), "s/token"),
        "seconds_per_token_squared": (float(found.attention), "s/token^2"),
    }
    return Calibration(fields, found.fit, (*notes, *_few(found.fit, 3)))


def transfer(points: Mapping[str, Sequence[float]]) -> Calibration:
    """latency + copies seconds_per_copy + bytes / bandwidth from bytes, block_bytes and seconds."""
    if len(set(zip(points["bytes"], points["block_bytes"], strict=True))) < 2:
        raise KvmodelError("one size of transfer only: latency and bandwidth need at least two")
    found = calibration.transfer_fit(points["bytes"], points["seconds"], block_bytes=points["block_bytes"])
    if max(points["bytes"]) / found.bandwidth < FLAT * min(points["seconds"]):
        raise KvmodelError("the times do not grow with the bytes: these points say nothing of the bandwidth")
    blocks = [b for b in set(points["block_bytes"]) if np.isfinite(b)]
    fields: dict[str, tuple[float, str]] = {
        "latency": (float(found.latency), "s"),
        "read_bandwidth": (float(found.bandwidth), "B/s"),
    }
    notes: tuple[str, ...] = ()
    if blocks:
        fields |= {"seconds_per_copy": (float(found.seconds_per_copy), "s"), "largest_transfer": (max(blocks), "B")}
    if len(set(points["block_bytes"])) == 1 and blocks:
        notes = ("one size of copy only: its cost cannot be told from the bandwidth, and is in it",)
    elif len(blocks) > 1:
        notes = ("largest_transfer is the largest copy measured: set it to the one your engine uses",)
    return Calibration(fields, found.fit, (*notes, *_few(found.fit, 3 if len(blocks) > 1 else 2)))


def _few(fit: calibration.Fit, terms: int) -> tuple[str, ...]:
    if len(fit.residuals) <= terms:
        return ("as many terms as points: the fit passes through them and its error is unknown",)
    return ("too few points for outliers to be noticed",) if len(fit.residuals) < terms + 2 else ()


def document(found: Calibration, points: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The calibration as plain data."""
    median, p90 = (None if np.isnan(v) else v for v in found.left_out)
    rows = [
        {
            **{name: None if np.isinf(values[i]) else values[i] for name, values in points.items()},
            "residual": float(found.fit.residuals[i]),
            "left_out_error": None if np.isnan(found.fit.left_out[i]) else float(found.fit.left_out[i]),
            "outlier": bool(found.fit.outliers[i]),
        }
        for i in range(len(found.fit.residuals))
    ]
    busy = [
        {"concurrency": float(c), "factor": float(f)} for c, f in zip(found.fit.levels, found.fit.busy, strict=True)
    ]
    return {
        "fields": {name: {"value": value, "unit": unit} for name, (value, unit) in found.fields.items()},
        "left_out_median": median,
        "left_out_p90": p90,
        "busy": busy,
        "points": rows,
        "notes": list(found.notes),
    }
