"""Checks a file of observed KV-cache sizes: what is predicted for each case, and how far that is from what
was printed.

A printed size is rounded, so the pool is known within half its last digit; a token count is reproduced when
some size within that rounding gives it exactly. Plain formulas are also accepted within 0.15 %, the rounding
of printed figures plus a page. Settings that a report gives only in prose (draft tokens, aligned states,
batch limit) are read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from kvmodel.analyses.reported_case import Reported, UnknownCaseError, reported
from kvmodel.analyses.size_cases import size_cases
from kvmodel.engines.llamacpp import LlamaCpp
from kvmodel.engines.sglang import Sglang
from kvmodel.engines.vllm import Vllm
from kvmodel.errors import KvmodelError
from kvmodel.system.llm import Llm

TOLERANCE = 0.0015  # rounding of printed figures plus at most one page
ABOUT = 0.02  # figures the source itself gives as "about"
FULLEST_RANK = 0.02  # pools of other ranks seen above the one that decides
USUAL_BATCHES = (2048, 4096, 8192, 16384, 32768)  # max_num_batched_tokens where a report leaves it out

VERDICTS = ("reproduced", "explained mismatch", "not modelled", "mismatch")
REPRODUCED, EXPLAINED, NOT_MODELLED, MISMATCH = VERDICTS


@dataclass(frozen=True)
class CaseResult:
    """One case: what was printed, what is predicted, and the judgement."""

    id: str
    engine: str
    kind: str
    quantity: str
    predicted: float | None
    published: float | None
    verdict: str
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Relative error of the prediction."""
        if self.predicted is None or not self.published:
            return None
        return self.predicted / self.published - 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "engine": self.engine,
            "kind": self.kind,
            "quantity": self.quantity,
            "predicted": self.predicted,
            "published": self.published,
            "error": self.error,
            "verdict": self.verdict,
            "reason": self.reason,
        }


def evaluate_cases(document: Mapping[str, Any], configs: Path, source: str = "cases") -> list[CaseResult]:
    """Results of all cases of a file, in its order. `configs`: directory of the config.json files it names."""
    return [evaluate_case(case, configs) for case in size_cases(document, source)]


def summary(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """Per kind: cases, how many of each verdict, median and largest error of those reproduced."""
    kinds: dict[str, list[CaseResult]] = {}
    for result in results:
        kinds.setdefault(result.kind, []).append(result)
    return [
        {
            "kind": kind,
            "cases": len(found),
            **{verdict: sum(r.verdict == verdict for r in found) for verdict in VERDICTS},
            **_errors([abs(r.error) for r in found if r.verdict == REPRODUCED and r.error is not None]),
        }
        for kind, found in kinds.items()
    ]


def _errors(errors: list[float]) -> dict[str, float | None]:
    return {"median_error": median(errors) if errors else None, "largest_error": max(errors, default=None)}


def evaluate_case(case: Mapping[str, Any], configs: Path) -> CaseResult:
    """Result of one case. What is not modelled is said, never raised."""
    kind = str(case.get("kind") or "pool")
    blank = CaseResult(str(case.get("id", "?")), str(case.get("engine", "?")), kind, "", None, None, NOT_MODELLED)
    try:
        facts = reported(case, configs)
        if kind not in _RULES:
            return replace(blank, reason=f"no rule for cases of kind {kind!r}")
        return _RULES[kind](replace(blank, engine=facts.engine), facts)
    except UnknownCaseError as error:
        return replace(blank, reason=str(error))
    except KvmodelError as error:
        return replace(blank, reason=str(error))


def _pool(result: CaseResult, facts: Reported) -> CaseResult:
    """Tokens of a pool of printed size."""
    if facts.memory is None or facts.tokens is None:
        return replace(result, reason="the report does not print both the pool and its tokens")
    if facts.engine == "sglang":
        return _sglang_pool(result, facts)
    if facts.engine == "vllm":
        return _vllm_pool(result, facts)
    return _judge(result, facts, "tokens", facts.tokens, _logical_tokens(facts))


def _logical_tokens(facts: Reported) -> Callable[[float], float]:
    llm, ranks, block = facts.llm, facts.parallel.attention_tp, facts.block or 1
    per_token = float(llm.rank_growing_bytes_per_token(ranks)) / facts.parallel.pp
    if not per_token:
        raise UnknownCaseError("nothing grows with the tokens, so a pool has no token count")
    return lambda memory: memory // (per_token * block) * block


def _vllm_pool(result: CaseResult, facts: Reported) -> CaseResult:
    """The pool's tokens; a batch limit that was not printed is looked for among the usual ones."""
    length = facts.max_model_len or _own_length(facts.llm)
    best = None
    for engine, inferred in _vllm_engines(facts, counted=facts.batch_decides_tokens):

        def tokens(memory: float, engine: Vllm = engine) -> float:
            return engine.pool(facts.llm, memory, facts.parallel, length).tokens

        judged = _judge(result, facts, "tokens", facts.tokens, tokens)
        if judged.verdict == REPRODUCED:
            return replace(judged, reason=_joined(judged.reason, inferred))
        best = judged if best is None or abs(judged.error or 9) < abs(best.error or 9) else best
    assert best is not None
    layout = facts.vllm().layout(facts.llm, facts.parallel, length)
    windowed = any(group.role in ("window", "chunk") for group in layout.groups)
    if windowed and facts.batched_tokens is None:
        return replace(
            best,
            verdict=NOT_MODELLED if not facts.about else EXPLAINED,
            reason="the batch limit and the longest request decide the count and are not all in the report",
        )
    ratio = best.predicted / best.published
    if len(layout.groups) == 1 and 0 < (1 / ratio - 1) * -1 < FULLEST_RANK and facts.several_ranks:
        return replace(
            best,
            verdict=EXPLAINED,
            reason="the printed pool is one rank's, the count that of the rank with least memory",
        )
    return best


def _vllm_engines(facts: Reported, counted: bool = True) -> list[tuple[Vllm, str]]:
    """Engines the report allows, each with what was inferred; several when an unprinted batch limit matters."""
    engine = facts.vllm()
    if facts.batched_tokens is not None or not facts.windowed or not counted:
        return [(engine, "")]
    return [
        (engine.model_copy(update={"max_batched_tokens": batch}), f"batch limit of {batch:,} tokens inferred")
        for batch in USUAL_BATCHES
    ]


def _sglang_pool(result: CaseResult, facts: Reported) -> CaseResult:
    engine: Sglang = facts.sglang()
    ranks = facts.parallel.attention_tp
    cells, page = engine.cells(facts.llm, ranks, budget=True), engine.page(facts.llm)
    if facts.case.get("pool") == "sliding_layers":
        return _judge(
            result,
            facts,
            "tokens of the window pool",
            facts.tokens,
            lambda memory: memory // cells.window // page * page,
        )
    stored = engine.cells(facts.llm, ranks).full
    if cells.window or cells.state:
        return _judge(
            result,
            facts,
            "tokens",
            facts.tokens,
            lambda memory: engine.pool(facts.llm, memory, facts.parallel, facts.max_model_len).tokens,
        )
    judged = _judge(result, facts, "tokens", facts.tokens, lambda memory: memory // cells.full // page * page)
    if stored > cells.full:
        judged = replace(
            judged,
            reason=_joined(
                judged.reason, f"the logged size leaves out what is stored beside: {stored:,.0f} B/token in all"
            ),
        )
    return judged


def _required(result: CaseResult, facts: Reported) -> CaseResult:
    """Bytes printed as needed for one request of max_model_len tokens."""
    length = facts.max_model_len or facts.tokens
    if length is None or facts.memory is None:
        return replace(result, reason="the report does not print both the bytes and the length")
    if facts.engine != "vllm":
        return _judge_bytes(result, facts, "bytes", float(facts.llm.sequence_bytes(length)))
    best = None
    for engine, inferred in _vllm_engines(facts):
        judged = _judge_bytes(result, facts, "bytes", float(engine.required_bytes(facts.llm, length, facts.parallel)))
        judged = replace(judged, reason=_joined(judged.reason, inferred if judged.verdict == REPRODUCED else ""))
        if judged.verdict == REPRODUCED:
            return judged
        best = judged if best is None or abs(judged.error or 9) < abs(best.error or 9) else best
    assert best is not None
    if facts.windowed and facts.batched_tokens is None:
        verdict = EXPLAINED if facts.about else NOT_MODELLED
        return replace(best, verdict=verdict, reason="the batch limit decides the requirement and is not in the report")
    return best


def _longest(result: CaseResult, facts: Reported) -> CaseResult:
    """Tokens printed as the longest request that fits."""
    if facts.engine != "vllm":
        return _pool(result, facts)
    limit = facts.max_model_len or max(_own_length(facts.llm), 2 * (facts.tokens or 0))
    return _judge(
        result,
        facts,
        "longest request",
        facts.tokens,
        lambda memory: facts.vllm().longest_request(facts.llm, memory, facts.parallel, limit),
    )


def _buffer(result: CaseResult, facts: Reported) -> CaseResult:
    """Bytes of the buffers of a context."""
    if facts.tokens is None:
        return replace(result, reason="the report does not print the context")
    if facts.engine == "llamacpp":
        engine = LlamaCpp(slots=facts.slots, unified=bool(facts.case.get("unified", False)))
        growing = [group for group in facts.llm.attention if group.kind not in _STATES]
        context = facts.llm.model_copy(update={"attention": tuple(growing)}) if growing else facts.llm
        predicted = float(engine.buffer_bytes(context, facts.tokens))
    else:
        predicted = float(facts.llm.growing_bytes_per_token) * facts.tokens
    return _judge_bytes(result, facts, "bytes", predicted)


_STATES = ("mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "short_convolution")


def _state(result: CaseResult, facts: Reported) -> CaseResult:
    """Bytes of the states of one sequence."""
    states = [group for group in facts.llm.attention if group.kind in _STATES]
    if not states:
        return replace(result, reason="the model has no recurrent state")
    precision = facts.llm.precision
    if facts.state_dtype:
        precision = precision._replace(state=facts.state_dtype, convolution=facts.state_dtype)
    return _judge_bytes(result, facts, "bytes", float(sum(group.state_bytes(precision) for group in states)))


def _alignment(result: CaseResult, facts: Reported) -> CaseResult:
    """Attention block raised to the page of the state."""
    layout = facts.vllm().layout(facts.llm, facts.parallel)
    block = min(group.block for group in layout.groups if group.role == "tokens")
    exact = block == facts.block
    return replace(
        result,
        quantity="block tokens",
        predicted=block,
        published=facts.block,
        verdict=REPRODUCED if exact else MISMATCH,
    )


def _consistency(result: CaseResult, facts: Reported) -> CaseResult:
    """Printed tokens, from the printed concurrency alone: both must come from one number of blocks."""
    concurrency, length = facts.case.get("max_concurrency"), facts.max_model_len
    if concurrency is None or length is None or facts.tokens is None:
        return replace(result, reason="the report prints no concurrency")
    engine = facts.vllm()
    layout = engine.layout(facts.llm, facts.parallel, length)
    needed = float(engine.blocks_for(layout, length, facts.parallel))
    low, high = (concurrency - 0.005) * needed, (concurrency + 0.005) * needed
    counts = [
        engine.pool_of(facts.llm, blocks, layout, facts.parallel, length).tokens
        for blocks in range(int(low), int(high) + 2)
    ]
    predicted = min(counts, key=lambda count: abs(count - facts.tokens))
    return replace(
        result,
        quantity="tokens",
        predicted=predicted,
        published=facts.tokens,
        verdict=REPRODUCED if predicted == facts.tokens else MISMATCH,
    )


def _tensors(result: CaseResult, facts: Reported) -> CaseResult:
    """Tokens of a printed number of blocks."""
    blocks, block = facts.case.get("blocks"), facts.block
    if not blocks or not block:
        return replace(result, reason="the report prints no tensor shape")
    engine = facts.vllm() if facts.engine == "vllm" else None
    shown = engine.layout(facts.llm, facts.parallel).smallest_block if engine else block
    predicted = blocks * shown
    return replace(
        result,
        quantity="tokens",
        predicted=predicted,
        published=facts.tokens,
        verdict=REPRODUCED if predicted == facts.tokens else MISMATCH,
    )


def _estimate(result: CaseResult, facts: Reported) -> CaseResult:
    """A published estimate: the logical size."""
    if facts.tokens is None:
        return replace(result, reason="the estimate names no length")
    return _judge_bytes(result, facts, "bytes", float(facts.llm.growing_bytes_per_token) * facts.tokens)


_RULES: dict[str, Callable[[CaseResult, Reported], CaseResult]] = {
    "pool": _pool,
    "required_for_max_len": _required,
    "estimated_max_len": _longest,
    "buffer": _buffer,
    "state_per_sequence": _state,
    "page_alignment": _alignment,
    "consistency": _consistency,
    "tensor_shape": _tensors,
    "published_estimate": _estimate,
}


def _judge(
    result: CaseResult, facts: Reported, quantity: str, published: float | None, predict: Callable[[float], float]
) -> CaseResult:
    """A count predicted from a pool known within its rounding: the one nearest to the printed count."""
    assert facts.memory is not None and published is not None
    nominal = predict(facts.memory)
    predicted = _nearest(predict, facts.memory - facts.rounding, facts.memory + facts.rounding, published)
    result = replace(result, quantity=quantity, predicted=float(predicted), published=float(published))
    if predicted == published:
        reason = "" if nominal == published else "for a pool within the rounding of its printed size"
        return replace(result, verdict=REPRODUCED, reason=reason)
    return _by_tolerance(result, facts)


def _nearest(predict: Callable[[float], float], low: float, high: float, wanted: float) -> float:
    """The predicted count nearest to `wanted` over pools from low to high; counts rise with the pool in steps."""
    if predict(low) >= wanted:
        return predict(low)
    if predict(high) <= wanted:
        return predict(high)
    while high - low > 1:  # a byte
        middle = (low + high) / 2
        low, high = (middle, high) if predict(middle) < wanted else (low, middle)
    return min(predict(low), predict(high), key=lambda count: abs(count - wanted))


def _judge_bytes(result: CaseResult, facts: Reported, quantity: str, predicted: float) -> CaseResult:
    """Bytes predicted for a length."""
    if facts.memory is None:
        return replace(result, reason="the report prints no bytes")
    result = replace(result, quantity=quantity, predicted=predicted, published=facts.memory)
    if abs(predicted - facts.memory) <= facts.rounding:
        return replace(result, verdict=REPRODUCED)
    return _by_tolerance(result, facts)


def _by_tolerance(result: CaseResult, facts: Reported) -> CaseResult:
    error = abs(result.error or 0.0)
    if error <= TOLERANCE and not facts.hybrid_count:
        return replace(result, verdict=REPRODUCED, reason="within 0.15 %")
    if facts.patched and error > TOLERANCE:
        return replace(result, verdict=EXPLAINED, reason="a patched build, whose rules are not the release's")
    if facts.about:
        near = error <= ABOUT
        return replace(result, verdict=REPRODUCED if near else EXPLAINED, reason="the source says 'about'")
    return replace(result, verdict=MISMATCH)


def _own_length(llm: Llm) -> int:
    if llm.max_context is None:
        raise UnknownCaseError("neither the report nor the model states a longest request")
    return int(llm.max_context)


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
