"""Laws that every kind of layer obeys, checked over random shapes of each kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from kvmodel.attention import KINDS, AttentionLayers
from kvmodel.formulas.kv_size import ENCODINGS, Precision

SMALL = st.integers(1, 64)
DIM = st.sampled_from([16, 64, 80, 128, 192, 256, 512])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "layers": st.integers(1, 100),
    "kv_heads": SMALL,
    "query_heads": SMALL,
    "k_dim": DIM,
    "v_dim": DIM,
    "window": st.integers(1, 10_000),
    "chunk": st.integers(1, 10_000),
    "latent_dim": DIM,
    "rope_dim": st.just(16),
    "selected_tokens": st.sampled_from([0, 2048]),
    "dim": DIM,
    "pool": st.integers(1, 8),
    "ratio": st.sampled_from([0, 4, 128]),
    "index_dim": st.sampled_from([0, 128]),
    "encoder_tokens": st.integers(0, 6000),
    "heads": SMALL,
    "key_dim": DIM,
    "value_dim": DIM,
    "key_heads": SMALL,
    "conv_kernel": st.integers(1, 5),
    "groups": st.integers(1, 8),
    "inner": st.integers(1, 8192),
    "state": st.integers(1, 256),
    "channels": st.integers(1, 4096),
    "index_heads": SMALL,
    "selected_entries": st.sampled_from([0, 512]),
}
PRECISIONS = st.sampled_from(
    [
        Precision(),
        Precision(*["fp16"] * 5),
        Precision("fp8", "fp8", "f32", "bf16", "fp8"),
        Precision("q8_0", "q4_0", "f32", "f32", "fp8"),
        Precision("nvfp4", "nvfp4"),
    ]
)
TOKENS = st.integers(0, 10**7)


def layers_of(kind: type) -> st.SearchStrategy[Any]:
    names = [name for name in kind.model_fields if name in FIELDS]
    return st.fixed_dictionaries({name: FIELDS[name] for name in names}).map(lambda values: kind(**values))


any_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def total(group: Any, tokens: Any, precision: Precision, tp: Any = 1) -> Any:
    return (
        group.growing_bytes_per_token(precision, tp) * np.asarray(tokens, float)
        + group.bounded_bytes(tokens, precision, tp)
        + group.state_bytes(precision, tp)
    )


@any_kind
@given(data=st.data())
def test_size_never_falls_with_tokens(kind: type, data: st.DataObject) -> None:
    group, precision = data.draw(layers_of(kind)), data.draw(PRECISIONS)
    few, more = sorted([data.draw(TOKENS), data.draw(TOKENS)])
    assert total(group, few, precision) <= total(group, more, precision)


@any_kind
@given(data=st.data())
def test_bounded_part_levels_off(kind: type, data: st.DataObject) -> None:
    group, precision = data.draw(layers_of(kind)), data.draw(PRECISIONS)
    far = group.bounded_bytes(10**9, precision)
    assert far == group.bounded_bytes(np.inf, precision) >= group.bounded_bytes(data.draw(TOKENS), precision)


@any_kind
@given(data=st.data())
def test_ranks_together_hold_at_least_one_copy(kind: type, data: st.DataObject) -> None:
    group, precision = data.draw(layers_of(kind)), data.draw(PRECISIONS)
    tp, tokens = data.draw(st.integers(1, 128)), data.draw(TOKENS)
    assert tp * total(group, tokens, precision, tp) >= total(group, tokens, precision) * (1 - 1e-12)


@any_kind
@given(data=st.data())
def test_arrays_equal_scalars(kind: type, data: st.DataObject) -> None:
    group, precision = data.draw(layers_of(kind)), data.draw(PRECISIONS)
    tokens, ranks = np.array([0, 1, 100, 5000]), np.array([[1], [3], [64]])
    whole = np.broadcast_to(total(group, tokens, precision, ranks), (3, 4))
    single = [[total(group, n, precision, int(tp)) for n in tokens] for tp in ranks[:, 0]]
    np.testing.assert_array_equal(whole, single)


@any_kind
@given(data=st.data())
def test_fp8_is_never_larger_than_bf16(kind: type, data: st.DataObject) -> None:
    group, tokens = data.draw(layers_of(kind)), data.draw(TOKENS)
    eight = Precision("fp8", "fp8", "bf16", "bf16", "fp8")
    assert total(group, tokens, eight) <= total(group, tokens, Precision())


@any_kind
@given(data=st.data())
def test_storage_is_what_the_bytes_say(kind: type, data: st.DataObject) -> None:
    """What an allocator is told to place adds up to the growing part and, at the limit, to the rest."""
    group, precision = data.draw(layers_of(kind)), data.draw(PRECISIONS)
    stored, tp = group.storage(precision, 2), 2
    growing = sum(s.layers * s.row_bytes for s in stored if s.role == "tokens")
    bounded = sum(s.layers * s.row_bytes * s.limit for s in stored if s.role in ("window", "chunk"))
    state = sum(
        s.layers * s.row_bytes * (s.limit if s.role == "encoder" else 1)
        for s in stored
        if s.role in ("state", "encoder")
    )
    np.testing.assert_allclose(growing, group.growing_bytes_per_token(precision, tp), rtol=1e-12)
    np.testing.assert_allclose(bounded, group.bounded_bytes(np.inf, precision, tp), rtol=1e-12)
    np.testing.assert_allclose(state, group.state_bytes(precision, tp), rtol=1e-12)


@any_kind
@given(data=st.data())
def test_round_trip_through_the_union(kind: type, data: st.DataObject) -> None:
    group = data.draw(layers_of(kind))
    assert TypeAdapter(AttentionLayers).validate_python(group.model_dump()) == group


@any_kind
@given(data=st.data())
def test_flops_are_not_negative(kind: type, data: st.DataObject) -> None:
    group = data.draw(layers_of(kind))
    assert group.quadratic_flops() >= 0 and group.bounded_flops_per_token() >= 0


def test_every_kind_has_its_own_name() -> None:
    names = [kind.model_fields["kind"].default for kind in KINDS]
    assert len(set(names)) == len(names)


def test_every_encoding_is_smaller_than_f32() -> None:
    assert all(e.bits / 8 + e.scale_bytes / e.group <= 4 for e in ENCODINGS.values())
