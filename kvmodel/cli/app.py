"""The `kvmodel` command: names and help of its commands, and where errors become exit statuses.

Only declarations are imported here; a command imports what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from kvmodel.cli.breakeven import breakeven_command
from kvmodel.cli.calibrate import calibrate_app
from kvmodel.cli.endurance import endurance_command
from kvmodel.cli.evaluate import evaluate_command
from kvmodel.cli.exit_status import ExitStatus
from kvmodel.cli.fit import fit_command
from kvmodel.cli.new import new_command
from kvmodel.cli.plan import plan_command
from kvmodel.cli.presets import presets_app
from kvmodel.cli.retention import retention_command
from kvmodel.cli.schema import schema_command
from kvmodel.cli.size import size_command
from kvmodel.cli.trace import trace_command
from kvmodel.cli.validate import validate_command
from kvmodel.errors import KvmodelError

app = typer.Typer(
    name="kvmodel",
    help="Decide how much KV cache to keep, where, and for how long.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plan")(plan_command)
app.command("validate")(validate_command)
app.command("size")(size_command)
app.command("breakeven")(breakeven_command)
app.command("endurance")(endurance_command)
app.command("retention")(retention_command)
app.add_typer(calibrate_app, name="calibrate")
app.command("trace")(trace_command)
app.command("fit")(fit_command)
app.command("evaluate")(evaluate_command)
app.add_typer(presets_app, name="presets")
app.command("schema")(schema_command)
app.command("new")(new_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from kvmodel.version import __version__

        print(f"kvmodel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Decide how much KV cache to keep, where, and for how long."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status. `--debug` anywhere shows tracebacks."""
    arguments = list(arguments)
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    try:
        status = app(arguments, standalone_mode=True)
        return int(status or 0)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KvmodelError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return ExitStatus.USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:  # the reader went away; say nothing, and keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.OK
    except Exception as error:
        if debug:
            raise
        print(
            f"error: unexpected {type(error).__name__}: {error}\nRun again with --debug and report what it shows.",
            file=sys.stderr,
        )
        return ExitStatus.UNEXPECTED
