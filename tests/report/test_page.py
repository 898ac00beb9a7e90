"""The page: whole in itself, readable without a script, and true to the table."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from kvmodel.report import page as page_module
from kvmodel.results.table import Axis, central

from . import hand_made

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href", "formaction", "cite"}


class Reader(HTMLParser):
    """Tags with their attributes, visible text, contents of scripts and styles, and tables as lists of rows."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.raw, self.tables, self._open = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self.raw.append((self._open[-1], data))
            return
        self.text.append(data)
        if any(tag in ("td", "th") for tag in self._open):
            self.tables[-1][-1][-1] += data

    def table_with(self, *heads):
        return next(rows for rows in self.tables if set(heads) <= set(rows[0]))


@pytest.fixture(autouse=True)
def _short_bundle(monkeypatch):
    monkeypatch.setattr(page_module, "javascript_bundle", lambda: "window.vegaEmbed = () => Promise.resolve();")


def made(table=None, **about):
    study = hand_made.study()
    return Reader(page_module.page(study, table if table is not None else hand_made.table(**about)))


def test_nothing_is_loaded_from_anywhere():
    reader = made()
    assert not [(tag, attrs) for tag, attrs in reader.tags if LOADING & attrs.keys()]
    assert not {tag for tag, _ in reader.tags} & {"link", "img", "iframe", "object", "embed", "base", "a"}
    for kind, text in reader.raw:
        assert not (kind == "style" and ("url(" in text or "@import" in text))
    policy = next(attrs["content"] for _, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_names_are_text_and_never_markup():
    reader = made()
    assert hand_made.NAME in "".join(reader.text)
    assert ("b", {}) not in [(tag, attrs) for tag, attrs in reader.tags][:12]
    assert [tag for tag, _ in reader.tags].count("script") == 3  # specifications, libraries, loop
    assert next(attrs for tag, attrs in reader.tags if tag == "html") == {"lang": "en"}


def test_specifications_are_one_block_of_json_with_a_place_each():
    reader = made()
    specs = json.loads(reader.raw[1][1])
    assert specs.keys() == {attrs["data-chart"] for _, attrs in reader.tags if "data-chart" in attrs}
    assert "<" not in reader.raw[1][1]


def test_a_closing_tag_in_a_tier_name_stays_inside_the_block():
    table = hand_made.table()
    table.curves["capacity:</script><b>"] = table.curves.pop("capacity:nvme")
    assert "capacity:</script><b>/0" in json.loads(made(table).raw[1][1])


def test_every_row_stands_there_with_its_number():
    table = hand_made.table()
    head, *body = made(table).table_with("quantity", "median in base units")
    at = {name: head.index(name) for name in head}
    columns = [at[name] for name in ("quantity", "arm", "population", "tier", "median in base units")]
    shown = [tuple(line[k] for k in columns) for line in body]
    expected = [(r.quantity, r.arm, r.population, r.tier, f"{central(r.value):.6g} {r.unit}".strip()) for r in table]
    assert shown == expected


def test_tables_show_the_numbers_of_the_table():
    reader = made()
    head, *arms = reader.table_with("arm", "per qualified session")
    best = dict(zip(head, arms[-1], strict=True))
    assert best["arm"] == "all_tiers" and best["effective reuse"] == "50.0 %"
    assert best["per qualified session"] == "0.36 USD"
    assert best["cost"] == "21.6 USD/h" and best["bound by"] == "TTFT limit"  # 0.006 USD/s x 3600
    head, *tiers = reader.table_with("tier", "lifetime")
    nvme = dict(zip(head, tiers[-1], strict=True))
    assert nvme["capacity"] == "1.56 TiB" and nvme["fetch"] == "160 ms" and nvme["recompute"] == "123 ms"
    assert nvme["found here"] == "20.0 %" and nvme["lifetime"] == "12.4 yr"
    assert nvme["knee"] == "1.60 TiB" + "1.28 to 1.92 TiB"
    head, *chain = reader.table_with("population", "ceiling")
    assert [row[:4] for row in chain] == [["all", "80.0 %", "60.0 %", "50.0 %"], ["chat", "80.0 %", "60.0 %", "50.0 %"]]


def test_all_flags_are_shown():
    table = hand_made.table()
    text = "".join(made(table).text)
    for row in table:
        for flag in row.flags:
            assert flag.removeprefix("bound by: ") in text
    assert text.count("amplification assumed") == 2  # once as an assumption, once in the list of all rows


def test_verdict_comes_first_then_tables_then_charts():
    text = "".join(made().text)
    places = [
        text.index(title)
        for title in (
            "Verdict",
            "Targets",
            "Arms: ",
            "Tiers, ",
            "Reuse of all_tiers",
            "Sizes and workload",
            "Charts",
            "What qualifies these numbers",
            "Assumptions of the study",
            "Provenance",
            "All results",
            "Reproduce",
        )
    ]
    assert places == sorted(places)


def test_draws_are_summed_up_and_said_so():
    draws = np.linspace(0.2, 0.4, 101)
    reader = made(hand_made.table(cost=(np.inf, 0.9, draws), axes=(Axis("draw", np.arange(101)),)))
    head, *arms = reader.table_with("arm", "per qualified session")
    assert arms[-1][head.index("per qualified session")] == "0.3 USD0.21 to 0.39 USD"
    assert "Numbers vary over draw (101)" in "".join(reader.text)


def test_a_swept_axis_is_told_in_its_unit():
    table = hand_made.table(
        cost=(np.inf, 0.9, np.array([0.4, 0.3])), axes=(Axis("tiers.dram.capacity", np.array([2.0**39, 2.0**40]), "B"),)
    )
    assert "Over tiers.dram.capacity from 512 GiB to 1.00 TiB" in "".join(made(table).text)


def test_assumptions_have_their_basis():
    _, *body = made().table_with("number", "basis")
    found = {row[0]: row[1:3] for row in body}
    assert found["deployment.reserve"] == ["4 GB", "study, line 9"]
    assert found["deployment.decode.bandwidth_efficiency"] == ["0.8", "default of kvmodel"]
    assert found["prices.electricity"][1] == "assumed, preset example-2026-11"
    assert "prices.cxl" not in found  # the study has no such tier


def test_provenance_names_source_and_date():
    head, *body = made().table_with("path", "source")
    found = {row[0]: dict(zip(head, row, strict=True)) for row in body}
    memory, capacity = found["deployment.gpu.memory"], found["tiers.dram.capacity"]
    assert (memory["value"], memory["basis"]) == ("81559 MiB", "measured")
    assert memory["source"].startswith("Why does an NVIDIA H100 80GB card offer")
    assert (capacity["value"], capacity["origin"]) == ("1 TiB", "study, line 13")


def test_the_command_reproduces_the_page():
    study = hand_made.study("uncertain: {prices.nvme: {loguniform: [0.1 USD/GB, 0.4 USD/GB]}}\n")
    table = hand_made.table(overrides={"tiers.dram.capacity": "2 TiB"}, scenarios=["long"], draws=50)
    text = "".join(Reader(page_module.page(study, table)).text)
    assert (
        "kvmodel plan 'my study.yaml' --set 'tiers.dram.capacity=2 TiB' --scenario long --seed 7 --draws 50 "
        "--report report.html"
    ) in text
    assert "0123abcd" in text


def test_cases_stand_beside_each_other():
    table = hand_made.table().merge([hand_made.table("long")])
    _, *arms = made(table).table_with("arm", "per qualified session")
    assert [row[0] for row in arms] == [arm + case for case in ("base", "long") for arm in hand_made.ARMS]
    _, *sizes = made(table).table_with("quantity", "value", "definition")
    assert not [row for row in sizes if row[0].endswith("long")]  # nothing of it differs


def test_a_model_that_does_not_fit_still_gives_a_page():
    table = hand_made.table(curves=False)
    pool = hand_made.row("capacity.hbm_pool", -1e9, "B", tier="hbm", flags=("infeasible: 2 would fit",))
    text = "".join(made(type(table)((pool,), (), table.about)).text)
    assert "infeasible: 2 would fit." in text and "Charts" not in text
