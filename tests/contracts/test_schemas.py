"""The committed schemas are what the records say, and the shipped studies obey them."""

from __future__ import annotations

import json

import pytest

from kvmodel.study.json_schema import SCHEMAS, schema
from tests.conftest import ROOT


@pytest.mark.parametrize("name", SCHEMAS)
def test_committed_schema_is_the_generated_one(name):
    committed = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(schema(name)))


def test_every_number_of_a_study_states_its_unit():
    text = json.dumps(schema("study"))
    assert text.count('"unit"') > 60


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/study.yaml")), ids=lambda p: p.parent.name)
def test_examples_point_editors_at_the_schema(path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=../../schemas/study.schema.json"
    assert (path.parent / "../../schemas/study.schema.json").resolve().is_file()
