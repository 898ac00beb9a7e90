"""`kvmodel validate STUDY`: the resolved study, and where each number came from."""

from __future__ import annotations

from kvmodel.cli import options


def validate_command(
    study: options.Study,
    set_: options.Assignments = None,
    scenario: options.Scenario = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check a study and show every number with its origin: study, preset, --set, scenario."""
    validate(study, set_ or [], scenario, json, quiet)


def validate(study: str, assignments: list[str], scenario: str | None, json: bool, quiet: bool) -> None:
    """Print the resolved study. Raises StudyError with all problems of an invalid one."""
    import json as json_module

    from kvmodel.cli.console import leaves as leaves_of
    from kvmodel.cli.console import write_output
    from kvmodel.study.expand import expand
    from kvmodel.study.load import load_study
    from kvmodel.study.resolve import parse_assignment

    loaded = load_study(study, dict(parse_assignment(text) for text in assignments))
    if scenario is not None:
        loaded = loaded.with_scenario(scenario)
    expand(loaded)  # sweeps and uncertain numbers are part of what must be valid
    leaves = list(leaves_of(loaded.data))
    if json:
        rows = {path: {"value": value, **_known(_found(loaded.provenance, path))} for path, value in leaves}
        write_output(
            json_module.dumps({"study": loaded.name, "valid": True, "numbers": rows}, indent=1, default=str), None
        )
    elif not quiet:
        width = max(len(path) for path, _ in leaves)
        lines = [repr(loaded), ""]
        lines += [
            f"{path:<{width}}  {_shown(value):<28} {_origin(_found(loaded.provenance, path))}" for path, value in leaves
        ]
        write_output("\n".join(lines), None)


def _found(provenance, path: str):
    """Origin of a value, or of the first part of a list that is shown whole."""
    return provenance.get(path) or next((p for place, p in provenance.items() if place.startswith(path + ".")), None)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _known(provenance: object) -> dict[str, object]:
    return {} if provenance is None else {k: v for k, v in vars(provenance).items() if v is not None}


def _origin(provenance: object) -> str:
    if provenance is None:
        return "default"
    known = _known(provenance)
    parts = [str(known["origin"])]
    if "name" in known:
        parts.append(str(known["name"]))
    if "line" in known:
        parts.append(f"line {known['line']}")
    if "basis" in known:
        parts.append(
            f"[{known['basis']}] {known.get('source', '')}{', ' + str(known['date']) if 'date' in known else ''}"
        )
    return " ".join(parts)
