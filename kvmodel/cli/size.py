"""kvmodel size: KV bytes of a model, logical and as an engine stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kvmodel.errors import KvmodelError


def size(model: str, tokens: Sequence[int] = (), **settings: Any) -> dict[str, Any]:
    """The answer document; sequence_bytes maps each token count to bytes."""
    from kvmodel.analyses.size import kv_size

    answer = kv_size(model, list(tokens), **settings)
    answer["sequence_bytes"] = {str(n): _whole(b) for n, b in zip(tokens, answer["sequence_bytes"], strict=True)}
    return answer


def size_command(
    model: Annotated[str, typer.Argument(help="Preset, config.json, or a directory that holds one.")],
    tokens: Annotated[list[str] | None, typer.Option(help="Sequence length, such as 8192 or 128k; repeatable.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="Cache type, such as bf16, fp8, nvfp4 or q8_0.")] = None,
    k_dtype: Annotated[str | None, typer.Option(help="Cache type of keys where it differs.")] = None,
    v_dtype: Annotated[str | None, typer.Option(help="Cache type of values where it differs.")] = None,
    state_dtype: Annotated[str | None, typer.Option(help="Precision of recurrent states.")] = None,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    dcp: Annotated[int, typer.Option(help="Decode context parallelism, within tp.")] = 1,
    dp_attention: Annotated[int, typer.Option(help="Data-parallel attention groups, within tp.")] = 1,
    engine: Annotated[str | None, typer.Option(help="logical, vllm, sglang, llamacpp or tensorrt-llm.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Engine version whose rules apply.")] = None,
    block_tokens: Annotated[int | None, typer.Option(help="Configured tokens of a block.")] = None,
    memory: Annotated[str | None, typer.Option(help="KV pool of one rank, such as 40 GiB.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU preset to take the pool from, instead of --memory.")] = None,
    memory_fraction: Annotated[float | None, typer.Option(help="Share of the GPU's memory the engine may use.")] = None,
    reserve: Annotated[str, typer.Option(help="Bytes per GPU kept for activations, with --gpu.")] = "4 GB",
    max_model_len: Annotated[str | None, typer.Option(help="Longest request; by default the model's own.")] = None,
    max_batched_tokens: Annotated[int | None, typer.Option(help="Tokens scheduled in one step (vllm).")] = None,
    max_seqs: Annotated[int | None, typer.Option(help="Requests at once (vllm); slots (llamacpp).")] = None,
    speculative_tokens: Annotated[int | None, typer.Option(help="Draft tokens per step.")] = None,
    prefix_caching: Annotated[str | None, typer.Option(help="States kept for reuse (vllm): none, align, all.")] = None,
    hybrid_manager: Annotated[bool | None, typer.Option(help="Whether windows free their blocks (vllm).")] = None,
    encoder_tokens: Annotated[int | None, typer.Option(help="Tokens of the encoder, for cross attention.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")] = False,
) -> None:
    """KV bytes of a model: growing and fixed part, per rank, and what an engine's pool holds."""
    import json as json_text

    if memory is not None and gpu is not None:
        raise KvmodelError("give --memory or --gpu, not both")
    if (memory or gpu) and engine is None:
        engine = "logical"
    slots = {"slots": max_seqs} if engine == "llamacpp" else {"max_seqs": max_seqs}
    settings = {
        "engine_version": engine_version,
        "block_tokens": block_tokens,
        "memory_fraction": memory_fraction,
        "max_batched_tokens": max_batched_tokens,
        "speculative_tokens": speculative_tokens,
        "prefix_caching": prefix_caching,
        "hybrid_manager": hybrid_manager,
        **slots,
    }
    counts = [_count(text, "--tokens") for text in tokens or ()]
    answer = size(
        model,
        counts,
        kv_dtype=kv_dtype,
        k_dtype=k_dtype,
        v_dtype=v_dtype,
        state_dtype=state_dtype,
        tp=tp,
        pp=pp,
        dcp=dcp,
        dp_attention=dp_attention,
        engine=engine,
        memory=_bytes(memory, "--memory"),
        gpu=gpu,
        reserve=_bytes(reserve, "--reserve"),
        encoder_tokens=encoder_tokens,
        max_model_len=None if max_model_len is None else _count(max_model_len, "--max-model-len"),
        **{name: value for name, value in settings.items() if value is not None},
    )
    print(json_text.dumps(answer, indent=2) if json else "\n".join(_lines(model, answer)))


def _count(text: str, option: str) -> int:
    from kvmodel import units

    try:
        value = units.parse(text, "token")
    except ValueError as error:
        raise KvmodelError(f"{option}: {error}") from None
    if value < 0 or value != int(value) or value > 1e12:
        raise KvmodelError(f"{option}: a whole number of tokens from 0 to 1e12, got {text!r}")
    return int(value)


def _bytes(text: str | None, option: str) -> float | None:
    from kvmodel import units

    if text is None:
        return None
    try:
        return units.parse(text, "B")
    except ValueError as error:
        raise KvmodelError(f"{option}: {error}") from None


def _whole(value: Any) -> Any:
    number = float(value)
    return int(number) if number.is_integer() else number


def _lines(model: str, answer: dict[str, Any]) -> list[str]:
    """The answer for reading: every figure with its unit, one per line."""
    from kvmodel.analyses.size import model_weights
    from kvmodel.units import text

    lines = [answer["model"], "", f"{'layers':>7}  kind"]
    for group in answer["attention"]:
        facts = [f"{group['growing_bytes_per_token']:,} B/token"] if group["growing_bytes_per_token"] else []
        facts += [
            f"{name.replace('_', ' ')} {group[name]:,} tokens"
            for name in ("window", "chunk", "encoder_tokens")
            if name in group
        ]
        facts += [
            f"{text(group[name], 'B')} {word}"
            for name, word in (("bounded_bytes", "when full"), ("state_bytes", "constant"))
            if name in group
        ]
        lines.append(f"{group['layers']:7d}  {group['kind']}: {', '.join(facts) or 'stores nothing'}")
    lines += [
        "",
        f"growing            {_rate(answer)}",
        f"fixed              {text(answer['fixed_bytes_per_sequence'], 'B')} per sequence",
        *(
            f"{int(n):,} tokens".ljust(19) + f"{text(size, 'B')} ({size:,} B)"
            for n, size in answer["sequence_bytes"].items()
        ),
        f"on one rank        {_rate(answer['per_rank'])}, "
        f"{text(answer['per_rank']['fixed_bytes_per_sequence'], 'B')} fixed; stored "
        f"{answer['per_rank']['replication']:.3g} times over all ranks",
    ]
    weights = model_weights(model)
    if weights["parameters"]:
        size_text = text(weights["weight_bytes"], "B") if weights["weight_bytes"] else "weight bytes not known"
        lines.append(
            f"weights            {weights['parameters'] / 1e9:,.1f} B parameters, "
            f"{weights['active_parameters'] / 1e9:,.1f} B active, {size_text} ({weights['basis']})"
        )
    return lines + (_engine_lines(answer["engine"]) if "engine" in answer else [])


def _rate(answer: dict[str, Any]) -> str:
    """What each token adds, in words: attention entries, index keys, and where growth ends."""
    words = f"{answer['growing_bytes_per_token']:,} B/token"
    if answer["indexer_bytes_per_token"]:
        words += f" + {answer['indexer_bytes_per_token']:,} B/token of index keys"
    if answer.get("growing_up_to_tokens"):
        words += f" up to {answer['growing_up_to_tokens']:,} tokens, then nothing"
    elif answer.get("bytes_per_token_below_window", 0) > (
        answer["growing_bytes_per_token"] + answer["indexer_bytes_per_token"]
    ):
        words += f" ({answer['bytes_per_token_below_window']:,} B/token before any window is full)"
    return words


def _engine_lines(engine: dict[str, Any]) -> list[str]:
    from kvmodel.units import text

    lines = [
        "",
        f"{engine['kind']} {engine['version']}",
        f"block              {engine['block_tokens']:,} tokens, {text(engine['page_bytes'], 'B')} on one rank",
        f"reusable prefix    multiples of {engine['reuse_granularity_tokens']:,} tokens",
    ]
    if engine["blocks"] is not None:
        lines += [
            f"pool               {engine['blocks']:,} blocks, {engine['tokens']:,} tokens",
            f"longest requests   {engine['concurrency_at_max_model_len']:.2f} at once",
            f"wasted             {engine['wasted_fraction']:.1%} of the pool",
        ]
    return lines
