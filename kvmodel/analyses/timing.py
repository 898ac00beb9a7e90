"""Time to compute a prompt and time to fetch its prefix, per tier.

Question answered: from which prefix length on is each tier worth fetching from, idle and under its own load?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.capacity import moved_bytes_per_token
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import breakeven, decode, prefill, transfer
from kvmodel.system.case import Case

ROOFLINE_FACTOR = 2.0  # how far off a prefill at an assumed efficiency may be, either way; see docs/validation.md


@dataclass(frozen=True)
class PrefillTerms:
    """constant + linear (n - p) + attention (n^2 - p^2) on one engine instance."""

    constant: Any
    linear: Any
    attention: Any

    def seconds(self, tokens: Any, cached: Any) -> Any:
        """Time to prefill a prompt whose first `cached` tokens are at hand [s]."""
        return prefill.prefill_seconds(
            tokens, cached, constant=self.constant, linear=self.linear, attention=self.attention
        )

    def saved(self, cached: Any) -> Any:
        """Prefill time a cached prefix saves [s]."""
        return prefill.saved_seconds(cached, linear=self.linear, attention=self.attention)


def peak_flops(case: Case) -> tuple[Any, str]:
    """Peak rate of one instance [FLOP/s] in the format the model computes in, and that format."""
    gpu, wanted = case.deployment.gpu, case.model.weight_dtype
    known = {
        "fp8": ("fp8", "bf16"),
        "fp4": ("fp4", "fp8", "bf16"),
        "nvfp4": ("fp4", "fp8", "bf16"),
        "mxfp4": ("fp4", "bf16"),
        "int4": ("bf16",),
        "int8": ("int8", "bf16"),
    }.get(wanted, ("bf16", "fp16"))
    number_format = next((name for name in known if name in gpu.flops), None)
    if number_format is None:
        raise MissingNumberError(
            f"deployment.gpu.flops has none of {', '.join(known)} (it has "
            f"{', '.join(gpu.flops) or 'nothing'}); needed to predict prefill of {wanted} weights"
        )
    return np.asarray(gpu.flops[number_format], float) * case.deployment.tensor_parallel, number_format


def prefill_terms(case: Case) -> PrefillTerms:
    """Measured terms where the study has them, else the roofline at the stated efficiency; chunks on top of either."""
    speed = case.deployment.prefill
    if speed.mfu is None:
        linear, attention = speed.seconds_per_token, speed.seconds_per_token_squared
    else:
        flops, _ = peak_flops(case)
        linear_flops = case.model.flops_per_token + case.model.window_flops_per_token
        linear = prefill.linear_seconds_per_token(linear_flops / 2, flops, speed.mfu) + _all_reduce(case)
        attention = prefill.attention_seconds_per_token_squared(
            case.model.attention_flops_per_token_squared, flops, speed.mfu
        )
    if speed.chunk_tokens is not None:
        reread = case.model.rank_growing_bytes_per_token(case.deployment.tensor_parallel) / np.asarray(
            case.deployment.gpu.memory_bandwidth, float
        )
        steps, rereads = prefill.chunk_terms(
            speed.chunk_tokens, step_seconds=speed.step_seconds, reread_seconds_per_token=reread
        )
        linear, attention = linear + steps, attention + rereads
    return PrefillTerms(speed.constant, linear, attention)


def _all_reduce(case: Case) -> Any:
    """All-reduces of tensor parallelism per prefilled token, where the study asks for them [s/token]."""
    gpu, model = case.deployment.gpu, case.model
    if not case.deployment.prefill.all_reduce:
        return 0.0
    if gpu.peer_link is None or model.hidden_size is None:
        raise MissingNumberError("deployment.prefill.all_reduce needs deployment.gpu.peer_link and model.hidden_size")
    return prefill.all_reduce_seconds_per_token(
        reductions=2 * model.layers,
        hidden_size=model.hidden_size,
        bytes_per_element=2.0,
        tensor_parallel=case.deployment.tensor_parallel,
        bandwidth=gpu.peer_link,
    )


@dataclass(frozen=True)
class FetchTerms:
    """fixed + per_token p to restore p tokens from one tier, alone on the path."""

    fixed: Any
    """Look-up, first byte, and windows and states of the sequence [s]."""
    per_token: Any
    """Time each token adds: bytes over bandwidth, copies, conversion [s/token]."""
    hidden: Any
    """Share of the transfer that computation hides."""
    bandwidth: Any
    """Of one restore on an idle path: the smaller of devices and host links [B/s]."""
    device_bandwidth: Any
    """All devices of the tier together [B/s]."""
    link_bandwidth: Any
    """Host links of one instance, or of the path of one instance where the tier has none [B/s]."""
    bytes_per_token: Any
    """Bytes the path moves per token [B/token]."""
    fixed_bytes: Any
    """Windows and recurrent states that come with any prefix; their time is in `fixed` [B]."""

    def nbytes(self, tokens: Any) -> Any:
        """Bytes the path moves for a prefix [B]."""
        return self.fixed_bytes + self.bytes_per_token * np.asarray(tokens, float)

    @property
    def waiting(self) -> Any:
        """Part of `fixed` that no bandwidth shortens: look-up, first byte [s]."""
        return self.fixed - self.fixed_bytes / self.bandwidth

    def seconds(self, tokens: Any, compute: Any = 0.0, wait: Any = 0.0) -> Any:
        """Time of a restore that is not hidden behind `compute` seconds of prefill of the rest [s]."""
        moving = self.per_token * np.asarray(tokens, float)
        return self.fixed + wait + transfer.unhidden_seconds(moving, compute, self.hidden)


def fetch_terms(case: Case, tier: str) -> FetchTerms:
    """The path of a storage tier to the GPUs of one instance."""
    record = case.tiers[tier]
    if record.read_bandwidth is None:
        raise MissingNumberError(f"tiers.{tier}.read_bandwidth is not given; it is needed to time a fetch")
    devices = np.asarray(record.read_bandwidth, float) * record.count * record.efficiency
    links, latency = _hops(case, tier)
    own = devices / case.deployment.instances if record.scope == "instance" else devices
    every = np.stack(np.broadcast_arrays(own, *links))
    slowest, in_turn = transfer.path_bandwidth(bandwidth=every), 1.0 / np.sum(1.0 / every, axis=0)
    wire = slowest if record.pipelined else in_turn
    bandwidth = (
        wire
        if record.decode_rate is None
        else transfer.compressed_bandwidth(
            bandwidth=wire, ratio=1.0 / record.storage_amplification, decode_rate=record.decode_rate
        )
        * record.storage_amplification
    )
    each = moved_bytes_per_token(case, tier)
    piece = 0.0 if record.largest_transfer is None else np.asarray(record.largest_transfer, float)
    fixed = np.asarray(record.lookup, float) + record.latency + latency
    if record.pipelined:
        fixed = fixed + piece * (1.0 / in_turn - 1.0 / slowest)  # every other hop adds one piece
    copies = 0.0 if record.largest_transfer is None else each / piece
    per_token = transfer.transfer_seconds(
        each,
        latency=0.0,
        bandwidth=bandwidth,
        copies=copies,
        seconds_per_copy=record.seconds_per_copy,
        conversion_seconds_per_byte=record.conversion,
    )
    tp = np.asarray(case.deployment.tensor_parallel, float)
    states = (
        tp
        * case.model.fixed_bytes_per_sequence(case.deployment.tensor_parallel)
        * np.asarray(record.storage_amplification, float)
    )
    return FetchTerms(
        fixed + states / bandwidth,
        per_token,
        np.asarray(record.hidden, float),
        bandwidth,
        devices,
        transfer.path_bandwidth(bandwidth=np.stack(np.broadcast_arrays(*links))),
        each,
        states,
    )


def _hops(case: Case, tier: str) -> tuple[list[Any], Any]:
    """Bandwidths an instance has on each hop of the tier's path, and their latencies together."""
    gpu, tp = case.deployment.gpu, np.asarray(case.deployment.tensor_parallel, float)
    path = case.tiers[tier].path
    if not path:
        if gpu.host_link is None:
            raise MissingNumberError("deployment.gpu.host_link is not given; it is needed to time a fetch")
        return [np.asarray(gpu.host_link, float) * tp], 0.0
    each = [np.asarray(hop.bandwidth, float) * (tp if hop.per_gpu else 1.0) / hop.sharers for hop in path]
    return each, sum(np.asarray(hop.latency, float) for hop in path)


def break_even_tokens(terms: PrefillTerms, fetch: FetchTerms, wait: Any = 0.0) -> Any:
    """Shortest prefix worth fetching [tokens], by the serial law: nothing is hidden behind other computation."""
    return breakeven.break_even_tokens(
        fixed=fetch.fixed + wait, per_token=fetch.per_token, linear=terms.linear, attention=terms.attention
    )


def decode_lines(case: Case, context: Any, batch: Any = None) -> Any:
    """Bounds of a decode step as lines in the batch, (2, 3) + A: memory, compute, launch.

    batch: sequences for which a mixture of experts reads the experts they touch; None: all of them, as at the batches
    of a loaded engine.
    """
    model, deployment = case.model, case.deployment
    tp, speed = np.asarray(deployment.tensor_parallel, float), deployment.decode
    flops, _ = peak_flops(case)
    return decode.step_lines(
        context,
        weight_bytes=_weights_read(case, batch),
        kv_bytes_per_token=tp * model.rank_growing_bytes_per_token(tp),
        bandwidth=np.asarray(deployment.gpu.memory_bandwidth, float) * tp * speed.bandwidth_efficiency,
        active_parameters=model.flops_per_token / 2,
        flops=flops * speed.mfu,
        attention_width=model.attention_flops_per_token_squared,
        state_bytes=tp * model.fixed_bytes_per_sequence(tp),
        launch_floor=speed.launch_floor,
    )


def _weights_read(case: Case, batch: Any) -> Any:
    """Weight bytes of one step: all, or of a mixture of experts what a batch touches."""
    model, everything = case.model, np.asarray(case.model.weight_bytes, float)
    if batch is None or model.moe is None or model.active_parameters is None or model.parameters is None:
        return everything
    idle = 1.0 - model.moe.experts_per_token / model.moe.experts  # share of the experts one token leaves alone
    experts = np.minimum(everything * (1.0 - model.active_parameters / model.parameters) / idle, everything)
    return decode.weight_bytes_read(
        batch,
        shared_bytes=everything - experts,
        expert_bytes=experts,
        experts=model.moe.experts,
        experts_per_token=model.moe.experts_per_token,
    )
