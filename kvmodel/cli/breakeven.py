"""`kvmodel breakeven`: fetch or recompute, per tier, and the numbers at which the verdict flips."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvmodel.cli import options
from kvmodel.errors import KvmodelError


def breakeven_command(
    study: Annotated[
        str | None, typer.Argument(help="Study file (YAML); or give --model, --gpu and --tier.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model preset, or a config.json.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU preset.")] = None,
    tier: Annotated[list[str] | None, typer.Option(help="Tier or drive preset, or NAME=BANDWIDTH; repeatable.")] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs of one engine instance.")] = 1,
    kv_dtype: Annotated[str | None, typer.Option(help="Cache type, such as bf16 or fp8.")] = None,
    mfu: Annotated[float, typer.Option(help="Share of the peak rate prefill reaches.")] = 0.5,
    prefix: Annotated[
        str | None, typer.Option(help="Tokens of the prefix, such as 30k; the study's mean when absent.")
    ] = None,
    suffix: Annotated[str | None, typer.Option(help="Tokens behind it that are computed either way.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="When the prefix must be there; by default when a recompute would be.")
    ] = None,
    lead: Annotated[str | None, typer.Option(help="How long before the request a prefetch is issued.")] = None,
    used: Annotated[float, typer.Option(help="Probability that a prefetched prefix is used.", min=0, max=1)] = 1.0,
    path_load: Annotated[
        float, typer.Option(help="Use of the path by restores, where stores are added.", min=0.01, max=0.99)
    ] = 0.3,
    handoff_link: Annotated[str | None, typer.Option(help="Bandwidth between prefilling and decoding GPUs.")] = None,
    set_: options.Assignments = None,
    scenario: options.Scenario = None,
    json: options.Json = False,
    output: options.Output = None,
    csv: options.Csv = None,
    chart: options.Chart = None,
) -> None:
    """Fetch or recompute? One line per tier, and the curves over prefix length, load and queue."""
    from kvmodel.cli.breakeven_summary import summary_text
    from kvmodel.cli.console import write_output
    from kvmodel.study.breakeven import breakeven_table

    loaded = _study(study, model, gpu, tier or [], tensor_parallel, kv_dtype, mfu, set_ or [], scenario)
    asked = _question(loaded, prefix, suffix, deadline, lead, used, path_load)
    table = breakeven_table(loaded, asked, _number(handoff_link, "B/s", "--handoff-link"))
    if json:
        import json as json_text

        document = {
            **table.to_json(),
            "sentences": _sentences(table),
            "curves": {name: curve.to_json() for name, curve in table.curves.items()},
        }
        write_output(json_text.dumps(document, indent=1, allow_nan=False), output)
    elif csv != "-":
        write_output(summary_text(table), output)
    if csv is not None:
        write_output(table.curves["prefix"].to_frame().to_csv(index=False), csv)
    if chart is not None:
        from kvmodel.cli.tables_out import write_chart
        from kvmodel.report.breakeven_chart import chart as drawn

        write_chart(drawn(table), chart, str(table.about["name"]), _sentences(table))


def _sentences(table: Any) -> list[str]:
    from kvmodel.results.breakeven_verdict import sentences

    return list(sentences(table))


def _study(
    study: str | None,
    model: str | None,
    gpu: str | None,
    tiers: list[str],
    tensor_parallel: int,
    kv_dtype: str | None,
    mfu: float,
    assignments: list[str],
    scenario: str | None,
) -> Any:
    """The study file, or one made of the options."""
    from kvmodel.study.load import load_study, parse_study
    from kvmodel.study.resolve import parse_assignment

    overrides = dict(parse_assignment(text) for text in assignments)
    if study is not None:
        if model or gpu or tiers:
            raise KvmodelError("give a study file, or --model, --gpu and --tier, not both")
        loaded = load_study(study, overrides)
    else:
        missing = [name for name, given in (("--model", model), ("--gpu", gpu), ("--tier", tiers)) if not given]
        if missing:
            raise KvmodelError(
                f"{', '.join(missing)} missing: give a study file, or --model, --gpu and --tier, for "
                "example --model llama-3.1-70b --gpu h100-sxm --tier ddr5-8ch --tensor-parallel 4"
            )
        loaded = parse_study(_study_text(model, gpu, tiers, tensor_parallel, kv_dtype, mfu), "options", overrides)
    return loaded if scenario is None else loaded.with_scenario(scenario)


def _study_text(model: str, gpu: str, tiers: list[str], tensor_parallel: int, kv_dtype: str | None, mfu: float) -> str:
    """A study of the options; JSON is YAML. Its workload is only there because a study has one."""
    import json

    from kvmodel.tiers import SPEED_ORDER

    named = [_tier(text) for text in tiers]
    named.sort(key=lambda item: SPEED_ORDER[item[1]])
    what = {"config": model} if model.endswith(".json") else {"preset": model}
    workload = {
        "kind": "sessions",
        "arrivals": 1e-6,
        "first_tokens": 1000,
        "new_tokens": 0,
        "output_tokens": 1,
        "turns": 2,
        "pauses": {"pause": {"constant": 1}},
    }
    return json.dumps(
        {
            "kvmodel": 1,
            "name": f"{model} on {tensor_parallel} x {gpu}",
            "model": what | ({"kv_dtype": kv_dtype} if kv_dtype else {}),
            "deployment": {
                "gpu": {"preset": gpu, "count": tensor_parallel},
                "tensor_parallel": tensor_parallel,
                "engine": {"kind": "logical"},
                "prefill": {"mfu": mfu, "all_reduce": tensor_parallel > 1 and _has_peer_link(gpu)},
            },
            "tiers": {"hbm": {"kind": "hbm"}, **{name: record for name, _, record in named}},
            "workload": {"one": workload},
        }
    )


def _has_peer_link(gpu: str) -> bool:
    from kvmodel.presets import catalogue

    return gpu in catalogue.names("gpus") and "peer_link" in catalogue.load("gpus", gpu).fields


def _tier(text: str) -> tuple[str, str, dict[str, Any]]:
    """Name, kind and record of a tier given as a preset, or as NAME=BANDWIDTH of its path."""
    from kvmodel.errors import nearest
    from kvmodel.presets import catalogue

    name, sign, bandwidth = text.partition("=")
    if sign:
        return name.strip(), "remote", {"kind": "remote", "read_bandwidth": bandwidth.strip()}
    for family in ("tiers", "drives"):
        if text in catalogue.names(family):
            return text.replace(".", "-"), catalogue.load(family, text).fields["kind"], {"preset": text}
    known = [*catalogue.names("tiers"), *catalogue.names("drives")]
    raise KvmodelError(
        f"--tier: no tier or drive preset {text!r}{nearest(text, known)}; or write NAME=BANDWIDTH, for "
        "example disk='2.7 GB/s'"
    )


def _question(
    loaded: Any,
    prefix: str | None,
    suffix: str | None,
    deadline: str | None,
    lead: str | None,
    used: float,
    path_load: float,
) -> Any:
    """The restore asked about: the study's own, with what was said on the command line in its place."""
    from dataclasses import replace

    from kvmodel.analyses.breakeven import Question
    from kvmodel.study.breakeven import typical_question
    from kvmodel.system.case import Case

    if loaded.source.name == "options":
        asked = Question(8192.0)
    else:
        asked = typical_question(Case.model_validate(loaded.case_data))
    given = {
        "prefix": _number(prefix, "token", "--prefix"),
        "suffix": _number(suffix, "token", "--suffix"),
        "deadline": _number(deadline, "s", "--deadline"),
        "lead": _number(lead, "s", "--lead"),
    }
    if given["prefix"] is not None and given["prefix"] <= 0:
        raise KvmodelError("--prefix: at least one token")
    return replace(asked, used=used, path_load=path_load, **{k: v for k, v in given.items() if v is not None})


def _number(text: str | None, unit: str, option: str) -> float | None:
    from kvmodel import units

    if text is None:
        return None
    try:
        value = units.parse(text, unit)
    except ValueError as error:
        raise KvmodelError(f"{option}: {error}") from None
    if value < 0:
        raise KvmodelError(f"{option}: must not be negative, got {text!r}")
    return value
