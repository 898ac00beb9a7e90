"""`kvmodel presets`: what there is, and where its numbers come from."""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodel.cli import options

presets_app = typer.Typer(help="List presets, or show one with its sources.", no_args_is_help=True)


@presets_app.command("list")
def list_command(
    family: Annotated[
        str | None, typer.Argument(help="llms, gpus, drives, tiers or prices; all when absent.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """List presets by family."""
    import json as json_module

    from kvmodel.cli.console import write_output
    from kvmodel.errors import PresetError, nearest
    from kvmodel.presets import catalogue

    if family is not None and family not in catalogue.FAMILIES:
        raise PresetError(
            f"no family of presets {family!r}{nearest(family, catalogue.FAMILIES)}; there are "
            f"{', '.join(catalogue.FAMILIES)}"
        )
    wanted = catalogue.FAMILIES if family is None else (family,)
    listed = {name: {preset: catalogue.load(name, preset).title for preset in catalogue.names(name)} for name in wanted}
    if json:
        write_output(json_module.dumps(listed, indent=1), None)
        return
    lines = []
    for name, presets in listed.items():
        lines.append(f"{name}:")
        lines += [f"  {preset:<34} {title}" for preset, title in presets.items()]
    write_output("\n".join(lines), None)


@presets_app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="Preset name.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Show a preset: every number with unit, basis, source and date."""
    import json as json_module

    from kvmodel.cli.console import leaves, write_output
    from kvmodel.errors import PresetError, nearest
    from kvmodel.presets import catalogue

    found = [catalogue.load(family, name) for family in catalogue.FAMILIES if name in catalogue.names(family)]
    if not found:
        known = [preset for family in catalogue.FAMILIES for preset in catalogue.names(family)]
        raise PresetError(f"no preset {name!r}{nearest(name, known)}; 'kvmodel presets list' shows what there is")
    preset = found[0]
    if json:
        numbers = {path: {k: v for k, v in vars(p).items() if v is not None} for path, p in preset.provenance.items()}
        document = {
            "name": preset.name,
            "family": preset.family,
            "title": preset.title,
            "fields": preset.fields,
            "provenance": numbers,
            "sources": preset.sources,
        }
        write_output(json_module.dumps(document, indent=1, default=str), None)
        return
    lines = [f"{preset.name}  ({preset.family}): {preset.title}", ""]
    for path, value in leaves(preset.fields):
        birth = preset.provenance.get(path)
        origin = "" if birth is None else f"[{birth.basis}] {birth.source_title or ''} {birth.date or ''}".rstrip()
        note = f"  ({birth.note})" if birth is not None and birth.note else ""
        lines.append(f"  {path:<34} {value!s:<24} {origin}{note}")
    write_output("\n".join(lines), None)
