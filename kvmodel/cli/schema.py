"""`kvmodel schema NAME`: the JSON Schema of an input or output file."""

from __future__ import annotations

from typing import Annotated

import typer


def schema_command(
    name: Annotated[
        str | None,
        typer.Argument(help="Which one, for example study or tier; lists them when absent.", show_default=False),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; - is stdout.")
    ] = None,
) -> None:
    """Print the JSON Schema of a file kvmodel reads or writes."""
    import json

    from kvmodel.cli.console import write_output
    from kvmodel.errors import KvmodelError, nearest
    from kvmodel.study.json_schema import SCHEMAS, schema

    if name is None:
        write_output("\n".join(f"{known:<10} {title}" for known, (title, _) in SCHEMAS.items()), output)
        return
    if name not in SCHEMAS:
        raise KvmodelError(f"no schema {name!r}{nearest(name, SCHEMAS)}; there are {', '.join(SCHEMAS)}")
    write_output(json.dumps(schema(name), indent=1), output)
