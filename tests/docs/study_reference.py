"""The part of docs/study.md that comes from the records; `python -m tests.docs.study_reference` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvmodel import units
from kvmodel.analyses.quantities import QUANTITIES
from kvmodel.laws import LAWS
from kvmodel.results.table import Table
from kvmodel.study.json_schema import schema
from tests.studies import planned

PAGE = Path(__file__).resolve().parents[2] / "docs" / "study.md"
BEGIN, END = "<!-- from the records: begin -->", "<!-- from the records: end -->"

# Heading of each part, and the records it shows.
PARTS = (
    ("The top of the file", ("Study",)),
    ("`model`", ("Llm", "MixtureOfExperts")),
    ("`deployment`", ("Deployment", "Gpu", "Prefill", "Decode")),
    ("`policy`", ("Policy", "Admission")),
    ("`slo`", ("Slo", "Percentile")),
    ("`prices`", ("Prices", "PromptCachePlan", "PriceRange")),
    ("`monte_carlo`", ("MonteCarlo",)),
)
KINDS = {  # where one of several kinds may stand
    "tiers": "`tiers.NAME`",
    "workload": "`workload.NAME`",
    "engine": "`deployment.engine`",
    "attention": "`model.attention`",
}
PARTS_OF_POPULATIONS = ("Pause", "TurnsLaw", "Geometric", "DayLevel", "Popularity")


def reference() -> str:
    """All generated tables, as they stand between the two marks."""
    body = schema("study")
    records: dict[str, Any] = {"Study": body, **body["$defs"]}
    lines: list[str] = []
    for heading, names in PARTS:
        lines += ["", f"### {heading}"]
        for name in names:
            lines += _record(records[name], named=name if len(names) > 1 else "")
    for place, heading in KINDS.items():
        lines += ["", f"### {heading}", *_kinds(list(_kinds_of(records, place)))]
        for name in PARTS_OF_POPULATIONS if place == "workload" else ():
            lines += _record(records[name], named=name, without=_law_names())
    lines += _others(records, lines)
    lines += [
        "",
        "### Laws",
        "",
        "| law | parameters | meaning |",
        "|---|---|---|",
        "| `constant` | the value | Always this value. |",
        *_laws(),
    ]
    lines += ["", "### Units", "", "| dimension | what it is | for example |", "|---|---|---|", *_units()]
    lines += ["", "### Quantities a target may name", "", "| quantity | unit | meaning |", "|---|---|---|"]
    lines += _quantities()
    return "\n".join(lines).strip("\n")


def _others(records: Mapping[str, Any], lines: Sequence[str]) -> list[str]:
    """Records that stand inside others and have not been shown yet; laws have a table of their own."""
    shown = {name for _, names in PARTS for name in names} | {line.split("**")[1] for line in lines if "**" in line}
    kinds = {record["title"] for place in KINDS for record in _kinds_of(records, place)}
    rest = [name for name in records if name not in shown | kinds and not name.startswith(("LawOf", "kvmodel__laws"))]
    parts = [line for name in rest for line in _record(records[name], named=name)]
    return ["", "### Parts of these", *parts] if parts else []


def _record(record: Mapping[str, Any], named: str = "", without: Sequence[str] = ()) -> list[str]:
    title = [f"**{named}**: {record.get('description', '')}".removesuffix(": "), ""] if named else []
    fields = {name: field for name, field in record["properties"].items() if name not in without}
    return [
        "",
        *title,
        "| field | value | default | meaning |",
        "|---|---|---|---|",
        *(_row(name, field, name in record.get("required", ())) for name, field in fields.items()),
    ]


def _kinds(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds, then every field once with the kinds that have it; nothing is said where most of them do."""
    users: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for record in records:
        for name, field in record["properties"].items():
            if name != "kind":
                needed = name in record.get("required", ())
                same = (name, _value(field), "needed" if needed else "", _clean(field.get("description", "")))
                users.setdefault(same, []).append((_kind(record), _default(field)))
    rows = []
    for (name, value, needed, meaning), having in users.items():
        most = 2 * len(having) > len(records)
        of = "" if most else f" of {', '.join(f'`{kind}`' for kind, _ in having)}"
        rows.append(f"| `{name}`{of} | {value} | {needed or _defaults(having)} | {meaning} |")
    return [
        "",
        "| kind | meaning |",
        "|---|---|",
        *(f"| `{_kind(record)}` | {_clean(record.get('description', ''))} |" for record in records),
        "",
        "| field | value | default | meaning |",
        "|---|---|---|---|",
        *rows,
    ]


def _defaults(having: Sequence[tuple[str, str]]) -> str:
    """One default, or which kinds have which."""
    by_default: dict[str, list[str]] = {}
    for kind, default in having:
        by_default.setdefault(default, []).append(f"`{kind}`")
    if len(by_default) == 1:
        return having[0][1]
    return "; ".join(f"{default or 'none'}: {', '.join(kinds)}" for default, kinds in by_default.items())


def _kind(record: Mapping[str, Any]) -> str:
    return record["properties"]["kind"]["const"]


def _kinds_of(records: Mapping[str, Any], place: str) -> Iterator[Mapping[str, Any]]:
    holder = {"engine": "Deployment", "attention": "Llm"}.get(place, "Study")
    node = records[holder]["properties"][place]
    node = node.get("items", node.get("additionalProperties", node))
    return (records[choice["$ref"].rsplit("/", 1)[-1]] for choice in node["oneOf"])


def _row(name: str, field: Mapping[str, Any], required: bool) -> str:
    default = "needed" if required else _default(field)
    return f"| `{name}` | {_value(field)} | {default} | {_clean(field.get('description', ''))} |"


def _value(field: Mapping[str, Any]) -> str:
    """What may stand there: unit and bounds of a number, the words of a choice, or the record it is."""
    if "unit" in field:
        return _number(field)
    if "const" in field or "enum" in field:
        return ", ".join(f"`{word}`" for word in field.get("enum", [field.get("const")]))
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return "a [law](#laws)" if name.startswith("LawOf") else name
    options = [option for option in (*field.get("anyOf", ()), *field.get("oneOf", ())) if option.get("type") != "null"]
    if len(options) > 3:
        return "one of the kinds"
    if options:
        return " or ".join(dict.fromkeys(_value(option) for option in options))
    if field.get("type") == "array":
        return f"list of {_value(field.get('items', {}))}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"by name: {_value(inner)}" if isinstance(inner, Mapping) else "by name"
    return {"string": "text", "boolean": "`true`, `false`", "integer": "whole number" + _bounds(field)}.get(
        field.get("type", ""), "any"
    )


def _number(field: Mapping[str, Any]) -> str:
    unit = field["unit"]
    number = next(option for option in field["anyOf"] if option.get("type") == "number")
    return ("number" if unit == "1" else unit) + _bounds(number, "" if unit == "1" else unit)


def _bounds(number: Mapping[str, Any], unit: str = "") -> str:
    """Bounds worth telling: 0 from below is understood, and so are those far above anything built."""
    low = number.get("minimum", number.get("exclusiveMinimum"))
    high = number.get("maximum", number.get("exclusiveMaximum"))
    parts = []
    if low is not None and (low != 0 or "exclusiveMinimum" in number):
        parts.append(f"{'from' if 'minimum' in number else 'above'} {low:g}")
    if high is not None and high <= 1024 and not unit:
        parts.append(f"{'to' if 'maximum' in number else 'below'} {high:g}")
    return f", {' '.join(parts)}" if parts else ""


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value in ("", [], {}) or isinstance(value, Mapping):
        return ""
    if value is True or value is False:
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return ", ".join(f"`{entry}`" for entry in value)
    unit = field.get("unit")
    if isinstance(value, float) and unit not in (None, "1") and value:
        return f"{value / 1e9:g} GB" if unit == "B" else units.text(value, unit)
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"


def _clean(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _law_names() -> tuple[str, ...]:
    return ("constant", *(law.kind for law in LAWS))


def _laws() -> Iterator[str]:
    for law in LAWS:
        fields = ", ".join(f"`{name}`" for name in law.model_fields)
        yield f"| `{law.kind}` | {fields} | {_clean(law.__doc__ or '')} |"


def _units() -> Iterator[str]:
    for dimension, (what, example) in units.DIMENSIONS.items():
        yield f"| {dimension or '1'} | {what} | `{example}` |"


def _quantities() -> Iterator[str]:
    """Names and units from the one list of them, meanings from a plan that tells them all."""
    table = planned()
    for name, unit in QUANTITIES.items():
        yield f"| `{name}` | {unit or '1'} | {_meaning(table, name)} |"


def _meaning(table: Table, quantity: str) -> str:
    rows = table.select(quantity=quantity).rows
    whole = [row for row in rows if not row.population and not (row.arm and row.tier)] or list(rows)
    return _clean(whole[0].definition) if whole else ""


def rewritten(page: str) -> str:
    """The page with its generated part renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
