"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

Study = Annotated[str, typer.Argument(help="Study file (YAML).", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; - is stdout.")]
Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Also write the table as CSV.")]
Chart = Annotated[str | None, typer.Option("--chart", metavar="FILE", help="Also draw it: .html, .svg or .png.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override one number; repeatable.")
]
Scenario = Annotated[str | None, typer.Option("--scenario", metavar="NAME", help="Under this scenario; a+b joins two.")]
Scenarios = Annotated[
    list[str] | None,
    typer.Option("--scenario", metavar="NAME", help="Also evaluate under this scenario; a+b joins two; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only results, no messages.")]
