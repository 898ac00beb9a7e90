"""Moving a request's KV from the GPUs that prefill to those that decode: needed even when nothing is ever reused.

Question answered: how long does the hand-off take, and which bandwidth keeps up with prefill?
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.analyses import timing
from kvmodel.analyses.answer import Answer
from kvmodel.formulas import breakeven, transfer
from kvmodel.system.case import Case

SHARE = 0.1  # of the prefill time that a hand-off may add, for the least bandwidth


def handed_bytes(case: Case, tokens: Any) -> Any:
    """Bytes of a prompt on all ranks of the decoding instance, windows and states included [B]."""
    tp = np.asarray(case.deployment.tensor_parallel, float)
    return tp * case.model.rank_sequence_bytes(tokens, case.deployment.tensor_parallel)


def evaluate(case: Case, tokens: Any, bandwidth: Any = None, latency: Any = 0.0) -> list[Answer]:
    """Bytes, least bandwidths, and over a link of given bandwidth [B/s] and latency [s] the time, for a prompt.

    tokens: length of the prompt [tokens]. Without overlap: the hand-off starts when prefill is done; sent layer by
    layer, all but about one layer's share of it hides behind the prefill as long as the link keeps up.
    """
    moved, computed = handed_bytes(case, tokens), timing.prefill_terms(case).seconds(tokens, 0.0)
    answers = [
        Answer("handoff.bytes", moved, "B", "KV of the prompt on all ranks that decode it"),
        Answer(
            "handoff.sustained_bandwidth",
            breakeven.break_even_bandwidth(moved, saved=computed),
            "B/s",
            "least bandwidth per prefilling instance that keeps up with prefill back to back",
        ),
        Answer(
            "handoff.least_bandwidth",
            breakeven.break_even_bandwidth(moved, saved=SHARE * computed, fixed=latency),
            "B/s",
            f"least bandwidth at which an unhidden hand-off adds at most {SHARE:.0%} to the prefill",
        ),
    ]
    if bandwidth is not None:
        seconds = transfer.transfer_seconds(moved, latency=latency, bandwidth=bandwidth)
        layered = transfer.layerwise_seconds(seconds, computed, case.model.layers) - computed
        answers += [
            Answer("handoff.seconds", seconds, "s", "hand-off after the prefill"),
            Answer(
                "handoff.layerwise_seconds",
                layered,
                "s",
                "what is left of it when each layer is sent while the next is computed",
            ),
        ]
    return answers
