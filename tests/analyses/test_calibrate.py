"""Calibration gives back the terms made points came from, and says when points cannot tell."""

from __future__ import annotations

import numpy as np
import pytest

from kvmodel.analyses import calibrate
from kvmodel.errors import KvmodelError

LENGTHS = np.array([1000.0, 2000, 4000, 8000, 16000, 32000])


def prefill_points(tokens=LENGTHS, cached=None, seconds=None, concurrency=None):
    cached = 0.0 * tokens if cached is None else cached
    made = 0.03 + 2e-5 * (tokens - cached) + 4e-10 * (tokens**2 - cached**2)
    return {
        "tokens": tokens.tolist(),
        "cached_tokens": cached.tolist(),
        "seconds": (made if seconds is None else seconds).tolist(),
        "concurrency": [1.0] * len(tokens) if concurrency is None else concurrency,
    }


def test_prefill_terms_come_back_also_past_a_cold_start():
    points = prefill_points()
    points["seconds"][0] *= 8
    found = calibrate.prefill(points)
    assert [value for value, _ in found.fields.values()] == pytest.approx([0.03, 2e-5, 4e-10], rel=1e-3)
    assert found.fit.outliers.tolist() == [True] + [False] * 5
    assert found.left_out[0] < 1e-3


def test_cached_prefixes_tell_attention_from_linear():
    tokens, cached = np.array([8000.0, 8000, 8000, 16000]), np.array([0.0, 4000, 6000, 8000])
    found = calibrate.prefill(prefill_points(tokens, cached))
    assert [value for value, _ in found.fields.values()] == pytest.approx([0.03, 2e-5, 4e-10], rel=1e-3)


def test_transfer_terms_come_back():
    """1 ms, 4 us per copy, 50 GB/s, with copies of 4 KiB to 2 MiB."""
    size = np.repeat([2.0**24, 2.0**28], 4)
    block = np.tile([2.0**12, 2.0**14, 2.0**17, 2.0**21], 2)
    points = {
        "bytes": size.tolist(),
        "block_bytes": block.tolist(),
        "seconds": (1e-3 + size / block * 4e-6 + size / 50e9).tolist(),
    }
    found = calibrate.transfer(points)
    values = {name: value for name, (value, _) in found.fields.items()}
    assert values == pytest.approx(
        {"latency": 1e-3, "read_bandwidth": 50e9, "seconds_per_copy": 4e-6, "largest_transfer": 2**21}, rel=1e-3
    )


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (prefill_points(LENGTHS[:2]), "2 different lengths"),
        (prefill_points(seconds=np.ones(6)), "do not grow with the tokens"),
    ],
)
def test_points_that_cannot_tell(points, says):
    with pytest.raises(KvmodelError, match=says):
        calibrate.prefill(points)


def test_transfers_that_cannot_tell():
    one = {"bytes": [1e6, 1e6], "block_bytes": [np.inf] * 2, "seconds": [1.0, 1.1]}
    with pytest.raises(KvmodelError, match="one size"):
        calibrate.transfer(one)
    flat = {"bytes": [1e3, 1e6, 1e9], "block_bytes": [np.inf] * 3, "seconds": [1.0, 1.0, 1.0]}
    with pytest.raises(KvmodelError, match="do not grow with the bytes"):
        calibrate.transfer(flat)


def test_few_points_are_said_to_be_few():
    found = calibrate.prefill(prefill_points(LENGTHS[:3]))
    assert np.isnan(found.left_out[0]) and "its error is unknown" in found.notes[0]
    assert calibrate.document(found, prefill_points(LENGTHS[:3]))["left_out_median"] is None
