"""Every preset file read as plain YAML: shape, birth certificates, units and a few physical limits.

The catalogue is not used, so a mistake there cannot hide a mistake in the data. Loops over leaves live in the
fixtures below; each test states one rule for one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvmodel import units

PRESETS = Path(__file__).parents[2] / "kvmodel" / "presets"
FAMILIES = ("llms", "gpus", "drives", "tiers", "prices", "paths")
BASES = {"datasheet", "published", "measured", "derived", "assumed"}
ABOUT = {"title", "kind", "sources", "notes"}
FILES = sorted(path for family in FAMILIES for path in (PRESETS / family).glob("*.yaml"))
FULLY_CERTIFIED = ("gpus", "tiers", "prices")  # families in which no number may stand without a certificate

# Dotted path of a field (without the preset's own keys) -> its dimension in kvmodel.units.
FIELDS = {
    "gpus": {
        "memory": "B",
        "memory_bandwidth": "B/s",
        "flops.*": "FLOP/s",
        "host_link": "B/s",
        "host_link_line": "B/s",
        "peer_link": "B/s",
        "power": "W",
    },
    "tiers": {
        "latency": "s",
        "read_bandwidth": "B/s",
        "write_bandwidth": "B/s",
        "line_bandwidth": "B/s",
        "power_per_byte": "W/B",
    },
    "prices": {
        "gpus.*": "USD/s",
        "dram": "USD/B",
        "cxl": "USD/B",
        "nvme": "USD/B",
        "remote": "USD/B",
        "object_store": "USD/B/s",
        "ranges.object_store.*": "USD/B/s",
        "ranges.*.*": "USD/B",
        "electricity": "USD/J",
        "amortization": "s",
        "power_usage_effectiveness": "",
    },
}
ABILITIES = ("host_addressable", "gpu_consumable", "survives_process", "survives_power_loss")


class UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice instead of keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key given twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=UniqueKeyLoader)


def is_certificate(node: Any) -> bool:
    return isinstance(node, dict) and ("value" in node or "basis" in node)


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf) with a certificate counted as one leaf."""
    if isinstance(node, dict) and not is_certificate(node):
        for key, child in node.items():
            yield from leaves(child, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from leaves(child, f"{path}[{index}]")
    else:
        yield path, node


def fields(preset: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(leaves({key: value for key, value in preset.items() if key not in ABOUT}))


def certificates(preset: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, leaf) for path, leaf in fields(preset) if is_certificate(leaf)]


def dimension_of(family: str, path: str) -> str | None:
    """Dimension of a field; the first matching line of FIELDS wins, so special cases stand first."""
    for pattern, dimension in FIELDS.get(family, {}).items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), path):
            return dimension
    return None


def base_value(preset: dict[str, Any], family: str, path: str) -> float | None:
    """Value of one certified field in base units, or None when the preset does not state it."""
    certificate = dict(certificates(preset)).get(path)
    if certificate is None:
        return None
    dimension = dimension_of(family, path)
    assert dimension is not None, path
    return units.parse(str(certificate["value"]), dimension)


def parses_as_something(text: str) -> bool:
    for dimension in units.DIMENSIONS:
        try:
            units.parse(text, dimension)
        except ValueError:
            continue
        return True
    return False


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


every_file = pytest.mark.parametrize("path", FILES, ids=named)
certified_files = pytest.mark.parametrize("path", [f for f in FILES if f.parent.name in FULLY_CERTIFIED], ids=named)
gpu_files = pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "gpus"], ids=named)
tier_files = pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "tiers"], ids=named)
price_files = pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "prices"], ids=named)


@every_file
def test_file_name_is_a_preset_name(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", path.stem), "lower case, digits, dashes, dots"


@every_file
def test_has_a_title(path: Path) -> None:
    title = read(path).get("title")
    assert isinstance(title, str) and title.strip()


def test_no_two_presets_of_a_family_share_a_title() -> None:
    titles = [(path.parent.name, read(path)["title"].casefold()) for path in FILES]
    assert {pair for pair in titles if titles.count(pair) > 1} == set()


@every_file
def test_certificates_are_complete(path: Path) -> None:
    for where, certificate in certificates(read(path)):
        assert {"value", "basis", "source"} <= set(certificate), where
        assert set(certificate) <= {"value", "basis", "source", "note"}, where
        assert certificate["basis"] in BASES, where
        assert not isinstance(certificate["value"], bool) and certificate["value"] is not None, where


@every_file
def test_sources_exist_and_say_where_they_come_from(path: Path) -> None:
    preset = read(path)
    sources = preset.get("sources", {})
    for where, certificate in certificates(preset):
        assert certificate["source"] in sources, where
    for key, source in sources.items():
        assert set(source) <= {"title", "publisher", "date", "url", "locator"}, key
        assert source.get("title"), key
        assert source.get("date"), f"{key}: a date, or 'undated'"
        assert source.get("url") or source.get("publisher"), key


@every_file
def test_values_carry_a_unit_of_the_right_dimension(path: Path) -> None:
    family = path.parent.name
    for where, certificate in certificates(read(path)):
        dimension = dimension_of(family, where)
        assert dimension is not None or family not in FIELDS, f"{where} is not in FIELDS"
        value = certificate["value"]
        if dimension is not None:
            assert units.parse(str(value), dimension) > 0, where
            assert dimension == "" or isinstance(value, str), f"{where}: write the unit"
        else:
            assert not isinstance(value, str) or parses_as_something(value), f"{where}: {value!r}"


@certified_files
def test_no_number_without_a_certificate(path: Path) -> None:
    """Not of models: counts such as layers are facts of the model's own file."""
    for where, leaf in fields(read(path)):
        bare = isinstance(leaf, (int, float)) and not isinstance(leaf, bool)
        bare = bare or (isinstance(leaf, str) and parses_as_something(leaf))
        assert not bare, f"{where}: {leaf!r}"


@every_file
def test_recalled_numbers_are_called_assumed(path: Path) -> None:
    for where, certificate in certificates(read(path)):
        if certificate["source"] == "recalled":
            assert certificate["basis"] == "assumed", where


@gpu_files
def test_links_do_not_exceed_their_line_rate(path: Path) -> None:
    preset = read(path)
    assert base_value(preset, "gpus", "host_link") < base_value(preset, "gpus", "host_link_line")


@gpu_files
def test_driver_memory_is_near_the_size_on_the_box(path: Path) -> None:
    """Memory is sold in units between GB and GiB: read as GB, the size on the box is at most GiB/GB low."""
    preset = read(path)
    sold = re.search(r"sold as (\d+) GB", dict(certificates(preset))["memory"]["note"])
    assert sold
    ratio = base_value(preset, "gpus", "memory") / (float(sold[1]) * units.GB)
    assert 0.995 < ratio <= units.GIB / units.GB


@gpu_files
def test_halving_the_number_format_does_not_slow_a_gpu(path: Path) -> None:
    """All these parts double their dense rate from BF16 to FP8, and at least double it to FP4."""
    preset = read(path)
    rates = [base_value(preset, "gpus", f"flops.{name}") for name in ("bf16", "fp8", "fp4")]
    assert rates[0]
    if rates[1]:
        assert rates[1] / rates[0] == pytest.approx(2, rel=0.02)  # printed with three digits
    if rates[2]:
        assert rates[2] / rates[1] > 1.99


@tier_files
def test_tier_states_kind_scope_and_the_four_abilities(path: Path) -> None:
    preset = read(path)
    assert preset["kind"] in {"hbm", "dram", "cxl", "nvme", "remote", "object_store"}
    assert preset["scope"] in {"instance", "node", "rack", "shared"}
    assert all(isinstance(preset[ability], bool) for ability in ABILITIES)
    assert preset["survives_process"] or not preset["survives_power_loss"]


@tier_files
def test_effective_bandwidth_stays_below_the_line(path: Path) -> None:
    preset = read(path)
    line = base_value(preset, "tiers", "line_bandwidth")
    for direction in ("read_bandwidth", "write_bandwidth"):
        effective = base_value(preset, "tiers", direction)
        assert effective is None or line is None or effective < line, direction


@price_files
def test_priced_gpus_are_presets(path: Path) -> None:
    names = {p.stem for p in FILES if p.parent.name == "gpus"}
    assert set(read(path)["gpus"]) <= names


@price_files
def test_example_prices_lie_in_their_range(path: Path) -> None:
    preset = read(path)
    for medium in preset["ranges"]:
        low, value, high = (
            base_value(preset, "prices", key) for key in (f"ranges.{medium}.low", medium, f"ranges.{medium}.high")
        )
        assert low <= value <= high, medium


def test_pcie_line_rates_follow_from_the_signalling() -> None:
    """16 lanes at 16 and 32 GT/s with 128 of 130 bits used (PCI-SIG, generations 4 and 5)."""
    for name, transfers in (("a100-sxm-80gb", 16e9), ("h100-sxm", 32e9)):
        line = base_value(read(PRESETS / "gpus" / f"{name}.yaml"), "gpus", "host_link_line")
        assert line == pytest.approx(16 * transfers * 128 / 130 / 8, rel=1e-3)
