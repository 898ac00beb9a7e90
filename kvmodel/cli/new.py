"""`kvmodel new`: a commented study to start from."""

from __future__ import annotations

from typing import Annotated

import typer


def new_command(
    path: Annotated[str, typer.Argument(help="File to write; - is stdout.")] = "study.yaml",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented starter study."""
    from importlib import resources
    from pathlib import Path

    from kvmodel.cli.console import say, write_output
    from kvmodel.errors import KvmodelError

    if path != "-" and Path(path).exists() and not force:
        raise KvmodelError(f"{path} exists already; --force overwrites it")
    write_output(resources.files("kvmodel.study").joinpath("starter.yaml").read_text(encoding="utf-8"), path)
    if path != "-":
        say(f"{path} written; next: kvmodel plan {path}")
