"""Hops between a tier and the GPUs: pipelined or in turn, per GPU or shared, compressed, from presets."""

from __future__ import annotations

import pytest

from kvmodel.analyses.timing import fetch_terms
from kvmodel.presets import catalogue
from kvmodel.system.case import Case
from kvmodel.tiers.path import Hop
from tests.studies import study

BASE = {"tiers__dram__read_bandwidth": 100e9, "tiers__dram__latency": 0, "deployment__gpu__host_link": 50e9}
TWO = [{"bandwidth": 40e9, "latency": 1e-3, "per_gpu": True}, {"bandwidth": 60e9, "latency": 2e-3, "sharers": 2}]


def terms(**changes):
    return fetch_terms(Case.model_validate(study(**{**BASE, **changes}).case_data), "dram")


def test_without_a_path_it_is_the_host_link():
    assert terms().bandwidth == 50e9 and terms().fixed == 0


def test_pipelined_hops_take_the_slowest_and_add_their_latency():
    """100, 40 and 60/2 GB/s: 30 GB/s; 3 ms."""
    found = terms(tiers__dram__path=TWO)
    assert found.bandwidth == pytest.approx(30e9) and found.fixed == pytest.approx(3e-3)
    assert found.link_bandwidth == pytest.approx(30e9) and found.device_bandwidth == 100e9


def test_hops_in_turn_add_up():
    found = terms(tiers__dram__path=TWO, tiers__dram__pipelined=False)
    assert 1 / found.bandwidth == pytest.approx(1 / 100e9 + 1 / 40e9 + 1 / 30e9)


def test_every_other_hop_adds_one_piece():
    """1 GB pieces: 1/100 + 1/40 s beside the slowest hop, by hand."""
    found = terms(tiers__dram__path=TWO, tiers__dram__largest_transfer=1e9)
    assert found.fixed == pytest.approx(3e-3 + 1 / 100 + 1 / 40)


def test_hops_of_its_own_grow_with_the_gpus():
    wide = {"deployment__tensor_parallel": 2, "tiers__dram__read_bandwidth": 1e15}
    own, shared = [{"bandwidth": 40e9, "per_gpu": True}], [{"bandwidth": 40e9}]
    assert terms(tiers__dram__path=own, **wide).bandwidth == 80e9
    assert terms(tiers__dram__path=shared, **wide).bandwidth == 40e9


@pytest.mark.parametrize(("rate", "expected"), [(1e15, 50e9), (60e9, 30e9)])
def test_compressed_kv_is_bound_by_link_or_decoder(rate, expected):
    """Half the bytes move: 50 GB/s of them, unless 60 GB/s of unpacked bytes are all the decoder gives."""
    plain = terms()
    packed = terms(tiers__dram__storage_amplification=0.5, tiers__dram__decode_rate=rate)
    assert packed.bytes_per_token == plain.bytes_per_token / 2
    assert packed.bandwidth == pytest.approx(expected)


@pytest.mark.parametrize("name", catalogue.names("paths"))
def test_path_presets_are_hops_and_say_where_each_number_is_from(name):
    preset = catalogue.load("paths", name)
    hop = Hop.model_validate(dict(preset.fields))
    assert {"bandwidth", "latency"} <= set(preset.provenance)
    assert hop.line_bandwidth is None or hop.bandwidth <= hop.line_bandwidth


def test_a_study_names_a_path_preset_and_may_change_it():
    path = [{"preset": "numa-far", "sharers": 4}, {"preset": "pcie5-x16-pinned"}]
    loaded = study(tiers__dram__path=path)
    assert loaded.record.tiers["dram"].path[0].bandwidth == 120e9
    assert fetch_terms(Case.model_validate(loaded.case_data), "dram").bandwidth == 30e9
