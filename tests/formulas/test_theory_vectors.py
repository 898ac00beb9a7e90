"""Every topic of the reference vectors has a test that answers it, or stands here with the reason why none does."""

from __future__ import annotations

import json
from pathlib import Path

from kvmodel.formulas import transfer
from tests.theory_vectors import disagreements, met, vectors_of

NOT_MODELLED = {
    "elastic_pooling": "blocking of a partitioned cache: pools here evict, they do not turn requests away",
    "uncertainty": "sampling of inputs is left to the scenarios of a study",
}


def test_every_topic_is_answered_somewhere_or_listed(reference_data):
    topics = {v["topic"] for v in json.loads(reference_data("theory_vectors.json").read_text(encoding="utf-8"))}
    assert topics
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    answered = {topic for topic in topics if f'vectors_of(reference_data, "{topic}")' in tests}
    assert topics - answered - set(NOT_MODELLED) == set()


def hops(i):
    terms = dict(latency=i["segment_latency_s"], bandwidth=[1e9 * rate for rate in i["segment_GBps"]])
    return {
        "store_and_forward_s": transfer.store_and_forward_seconds(i["bytes"], **terms),
        "pipelined_s": transfer.pipelined_seconds(i["bytes"], chunk_bytes=i["chunk_bytes"], **terms),
    }


def test_transfers_over_several_hops(reference_data):
    """Line rates of links (lanes, pins) are facts of the presets, not of a formula."""
    rates = ({"lanes"}, {"hbm3_pins", "hbm3_Gbps", "hbm4_pins", "hbm4_Gbps"})
    mine = [v for v in vectors_of(reference_data, "tiers") if set(v["inputs"]) not in rates]
    assert disagreements(mine, lambda v: hops(v["inputs"])) == []


def test_what_is_not_answered_is_named():
    vector = {"id": "mine", "inputs": {"a": 1.0}, "expected": {"b": 2.0, "c": 3.0}, "tolerance": {"rel": 1e-6}}
    assert disagreements([vector], lambda v: {"b": 2.0, "c": 3.0}) == []
    (wrong,) = disagreements([vector], lambda v: {"b": 2.1, "c": 3.0})
    (missing,) = disagreements([vector], lambda v: {"b": 2.0})
    (unknown,) = disagreements([vector], lambda v: v["inputs"]["z"])
    assert "mine: b is 2.1" in wrong and "nothing answers 'c'" in missing and "mine: no law" in unknown
    assert disagreements([vector], lambda v: {"b": 2.0}, not_modelled={"c": "a reason"}) == []


def test_tolerances_of_parts_are_taken_by_the_name_of_the_key():
    stated = {"mean": {"rel": 1e-6}, "simulated": {"rel": 0.1}}
    assert met(1.05, 1.0, stated, "simulated_p99_s") and not met(1.05, 1.0, stated, "mean_wait_s")
    assert not met(1.05, 1.0, stated, "another_s") and met(1.05, 1.0, stated, "another_s", digits=0.06)
    assert not met([1.0, 2.0], [1.0], {"rel": 0.1}, "points")
