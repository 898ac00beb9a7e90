"""Prefill of a measured case from first principles: no end-to-end time of any engine is used.

Matrix products and attention run at the rates of published kernel timings of that GPU where the file has them (kind
`kernel`), at a prior share of the peak elsewhere; what lies between them is bound by memory, tensor parallelism adds
its all-reduces, and the requests beside it their decode steps. Dense models only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.evaluate_case import Case, is_number
from kvmodel.errors import PresetError
from kvmodel.formulas import calibration, decode, prefill, queueing
from kvmodel.formulas.kv_size import element_bytes
from kvmodel.presets import catalogue
from kvmodel.system.llm import Llm
from kvmodel.units import parse

STEP_TOKENS = 8192  # token budget of an engine step: the default of vLLM on large GPUs
PRODUCT_SHARE = {"bf16": 0.75, "fp8": 0.6, "fp4": 0.45}  # of peak in large matrix products; assumed
ATTENTION_SHARE = 0.5  # of the bf16 peak, in which attention runs whatever the weights are in; assumed
MEMORY_SHARE = 0.8  # of the peak memory bandwidth; assumed
CONSTANT = 0.02  # launch, scheduling and sampling of a prefill [s]; assumed
LOW = {"constant": 0.005, "slower": 0.9}  # ends of the interval: constant [s], and factor on all else; assumed
HIGH = {"constant": 0.08, "slower": 1.6}


@dataclass(frozen=True)
class Rates:
    """What one GPU reaches."""

    products: float
    """Matrix products in the number format of the case [FLOP/s]."""
    attention: float
    """Causal attention [FLOP/s]."""
    memory: float
    """Memory bandwidth [B/s]."""
    peer: float | None
    """Link to the other GPUs [B/s]."""


@dataclass(frozen=True)
class Cold:
    """Time to first token and its interval [s]."""

    seconds: float
    low: float
    high: float


def predicted(case: Case, kernels: Iterable[Case] = ()) -> Cold | str:
    """The prediction, or the reason why there is none. kernels: cases of kind kernel, used where of the same GPU."""
    model, gpu, load = model_of(case["model"]), gpu_of(case["gpu"]), case["params"].get("concurrency")
    number_format = format_of(case["dtype"])
    reasons = {
        "model not in the presets": model is None or model.parameters is None or not model.hidden_size,
        "a roofline says too little of a mixture of experts": model is not None and model.moe is not None,
        "GPU or number format not in the presets": gpu is None or number_format not in gpu.fields["flops"],
        "tensor parallelism not stated": not case["tp"],
        "length not stated": not case["tokens_in"],
        "load not stated": not is_number(load),
        "marked doubtful by its collector": "UNCERTAIN" in (case.get("note") or ""),
    }
    reason = next((r for r, holds in reasons.items() if holds), None)
    if reason:
        return reason
    rates = rates_of(gpu, number_format, case["tokens_in"], kernels)
    seconds, low, high = (
        _ttft(case, model, rates, number_format, **prior)
        for prior in ({"constant": CONSTANT, "slower": 1.0}, LOW, HIGH)
    )
    return Cold(seconds, low, high)


def _ttft(case: Case, model: Llm, rates: Rates, number_format: str, constant: float, slower: float) -> float:
    """Mean time to first token [s]: alone, sent together, or in a closed loop whose other requests decode."""
    n, load = case["tokens_in"], case["params"]["concurrency"]
    alone = float(prefill.prefill_seconds(n, 0.0, constant=constant, **_terms(model, rates, case["tp"], slower)))
    if not case["tokens_out"] or case["tokens_out"] <= 1:
        return alone * float(calibration.concurrency_factor(load, n, STEP_TOKENS))
    step = _step(case, model, rates, number_format, load)
    busy = 1.5 * step if load > 1 else 0.0  # half of the step under way, and sharing the next
    return float(queueing.slowed_mean_sojourn(load, alone, case["tokens_out"] * step)) + busy


def _terms(model: Llm, rates: Rates, ranks: float, slower: float) -> dict[str, Any]:
    """Linear and attention term of prefill on so many ranks."""
    layers = model.layers
    between = prefill.activation_seconds_per_token(
        layers=layers, hidden_size=model.hidden_size, tensor_parallel=ranks, bandwidth=rates.memory
    )
    reduce = (
        0.0
        if ranks == 1 or rates.peer is None
        else prefill.all_reduce_seconds_per_token(
            reductions=2 * layers,
            hidden_size=model.hidden_size,
            bytes_per_element=2,
            tensor_parallel=ranks,
            bandwidth=rates.peer,
        )
    )
    linear = prefill.linear_seconds_per_token(model.flops_per_token / 2, rates.products * ranks, 1.0)
    attention = prefill.attention_seconds_per_token_squared(
        model.attention_flops_per_token_squared, rates.attention * ranks, 1.0
    )
    return {"linear": slower * (linear + between + reduce), "attention": slower * attention}


def _step(case: Case, model: Llm, rates: Rates, number_format: str, load: float) -> float:
    """Time per output token of the requests running beside, by the decode roofline [s]."""
    ranks = case["tp"]
    return float(
        decode.step_seconds(
            load,
            case["tokens_in"] + case["tokens_out"] / 2,
            weight_bytes=model.parameters * element_bytes(number_format),
            kv_bytes_per_token=ranks * model.rank_growing_bytes_per_token(ranks),
            bandwidth=rates.memory * ranks,
            active_parameters=model.flops_per_token / 2,
            flops=rates.products * ranks,
        )
    )


# --- what is known of the model and the GPU -------------------------------------------------------


def rates_of(gpu: catalogue.Preset, number_format: str, tokens: float, kernels: Iterable[Case] = ()) -> Rates:
    """Kernel rates of a GPU: the median product, and attention at the nearest length, as timed; else priors."""
    own = [c for c in kernels if (g := gpu_of(c["gpu"])) is not None and g.name == gpu.name]
    timed = [
        (str(c["params"].get("op")), c["params"]["flops"] / c["measured"]["latency_s"], c)
        for c in own
        if c["params"].get("flops") and c["measured"].get("latency_s")
    ]
    products = [rate for op, rate, c in timed if "gemm" in op and format_of(c["dtype"]) == number_format]
    length = {c["tokens_in"]: rate for op, rate, c in timed if "attention" in op and c["tokens_in"]}
    fields = gpu.fields
    peak, plain = (parse(fields["flops"][name], "FLOP/s") for name in (number_format, "bf16"))
    nearest = min(length, key=lambda n: abs(np.log(n / tokens)), default=None)
    return Rates(
        products=float(np.median(products)) if products else peak * PRODUCT_SHARE.get(number_format, 0.6),
        attention=length[nearest] if nearest else plain * ATTENTION_SHARE,
        memory=parse(fields["memory_bandwidth"], "B/s") * MEMORY_SHARE,
        peer=parse(fields["peer_link"], "B/s") if fields.get("peer_link") else None,
    )


def format_of(dtype: str | None) -> str:
    """Number format of a case, in the spelling of the GPU presets."""
    word = re.split(r"[ (]", (dtype or "").lower())[0]
    return {"fp16": "bf16", "bfloat16": "bf16", "float16": "bf16", "nvfp4": "fp4", "mxfp4": "fp4", "w4a16": "bf16"}.get(
        word, word
    )


def model_of(name: str | None) -> Llm | None:
    """Preset of a model by the name a case gives it; None where there is none."""
    wanted = re.sub(r"-instruct.*|-hf$|-(fp8|awq|gptq|int4|nvfp4)$", "", (name or "").lower())
    try:
        return Llm.model_validate(dict(catalogue.load("llms", wanted).fields))
    except PresetError:
        return None


def family_of(name: str | None) -> str:
    """Dense or mixture of experts: by its preset, else by how such models are named (A22B: active parameters)."""
    model = model_of(name)
    if model is not None:
        return "dense" if model.moe is None else "moe"
    return (
        "moe"
        if re.search(r"moe|mixtral|deepseek-(v|r)\d(?!-distill)|gpt-oss|-a\d+b", (name or "").lower())
        else "dense"
    )


def gpu_of(name: str | None) -> catalogue.Preset | None:
    """Preset that shares the first word of the name and most of the others; of several the SXM part."""
    wanted = re.split(r"[^a-z0-9.]+", (name or "").lower())
    known = [n for n in catalogue.names("gpus") if n.split("-")[0] == wanted[0]]
    best = max(known, key=lambda n: (len(set(n.split("-")) & set(wanted)), "sxm" in n), default=None)
    return None if best is None else catalogue.load("gpus", best)
