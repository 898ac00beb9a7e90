"""Decode that reads its KV from a lower tier at every step, and never brings it back.

Not to be confused with pausing and resuming, which moves the bytes once: here every token waits for the slow link.

Question answered: what does a token cost when its context stays in a lower tier, and after how many tokens is one
restore the cheaper way?
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.analyses import timing
from kvmodel.analyses.answer import Answer
from kvmodel.formulas import decode
from kvmodel.system.case import Case

READ_EVERY_STEP = "all of the context's KV is read over the tier's path for every output token"


def evaluate(case: Case, context: Any, batch: Any = 1.0) -> list[Answer]:
    """Time per output token with the context in HBM, and streamed from each storage tier.

    context: tokens each sequence attends to [tokens]; batch: sequences decoding together [1].
    """
    start, slope = timing.decode_lines(case, context, batch)
    in_hbm = np.max(start + slope * np.asarray(batch, float), axis=0)
    without_kv, slope = timing.decode_lines(case, 0.0, batch)
    rest = np.max(without_kv + slope * np.asarray(batch, float), axis=0)
    answers = [Answer("decode.step_in_hbm", in_hbm, "s", "time per output token, context in the GPUs' memory")]
    for tier in case.storage_tiers:
        path = timing.fetch_terms(case, tier)
        streamed = decode.streamed_step_seconds(
            rest,
            lower_tier_bytes=path.bytes_per_token * np.asarray(context, float) * batch,
            bandwidth=path.bandwidth,
            latency=path.fixed,
            hidden_fraction=path.hidden,
        )
        answers.append(
            Answer("decode.step_streamed", streamed, "s", f"time per output token: {READ_EVERY_STEP}", tier=tier)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            tokens = np.where(streamed > in_hbm, path.seconds(context) * batch / (streamed - in_hbm), np.inf)
        answers.append(
            Answer(
                "decode.restore_pays_after",
                tokens,
                "token",
                "output tokens after which one restore of all sequences takes less time than streaming",
                tier=tier,
            )
        )
    return answers
