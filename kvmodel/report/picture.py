"""One chart as a file: a page that needs nothing else, or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from kvmodel.errors import KvmodelError
from kvmodel.report.bundle import require_report_extra

KINDS = (".html", ".svg", ".png")


def require_kind(file: str) -> str:
    """The ending of a chart's file name. KvmodelError where it is none of KINDS, or what draws is not installed."""
    kind = file[file.rfind(".") :] if "." in file else ""
    if kind not in KINDS:
        raise KvmodelError(f"--chart {file}: the name must end in {', '.join(KINDS)}")
    require_report_extra()
    return kind


def picture(chart: Any, kind: str, title: str, sentences: Sequence[str] = ()) -> bytes:
    """An altair chart as `kind`; a page has the title and sentences above it."""
    import vl_convert

    spec = chart.to_dict()
    if kind == ".png":
        return vl_convert.vegalite_to_png(spec, scale=2)
    if kind == ".svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    body = vl_convert.vegalite_to_html(spec, bundle=True)
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return body.replace("<body>", f"<body><h1>{escape(title)}</h1>{said}", 1).encode()
