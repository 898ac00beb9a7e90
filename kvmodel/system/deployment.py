"""GPUs, parallel layout, engine, and how fast they really compute."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import model_validator

from kvmodel.engines import Engine
from kvmodel.quantity import Bytes, Quantity, Record, Seconds
from kvmodel.system.gpu import Gpu

Degree = Annotated[Any, Quantity("", ge=1, le=1024)]


class Prefill(Record):
    """Speed of prompt processing: constant + linear + attention, from measured terms or from an assumed efficiency."""

    mfu: Annotated[Any, Quantity("", gt=0, le=1)] | None = None
    """Share of the peak rate reached (model FLOPs utilisation); in place of measured terms."""
    constant: Seconds = 0.0
    """Time of a prefill of no tokens: launch, scheduling, first decode step."""
    seconds_per_token: Annotated[Any, Quantity("s/token", ge=0)] | None = None
    """Measured linear term on one engine instance."""
    seconds_per_token_squared: Annotated[Any, Quantity("s/token^2", ge=0)] | None = None
    """Measured attention term on one engine instance."""
    all_reduce: bool = False
    """Add the all-reduces of tensor parallelism over gpu.peer_link to the predicted terms, so that efficiency falls
    with it; mfu is then that of one GPU."""
    chunk_tokens: Annotated[Any, Quantity("token", gt=0)] | None = None
    """Tokens of a chunk where prompts are computed in chunks between decode steps; measured terms have it in them."""
    step_seconds: Seconds = 0.0
    """Time each further chunk adds: launch, and the decode tokens that ride along."""

    @model_validator(mode="after")
    def _one_source(self) -> Prefill:
        measured = (self.seconds_per_token is not None, self.seconds_per_token_squared is not None)
        if (self.mfu is None) == (not any(measured)):
            raise ValueError("needs either mfu or the measured seconds_per_token and seconds_per_token_squared")
        if any(measured) and not all(measured):
            raise ValueError("measured terms come in pairs: seconds_per_token and seconds_per_token_squared")
        return self


class Decode(Record):
    """Speed of generation."""

    bandwidth_efficiency: Annotated[Any, Quantity("", gt=0, le=1)] = 0.8
    """Share of the memory bandwidth reached while weights and KV are read."""
    mfu: Annotated[Any, Quantity("", gt=0, le=1)] = 0.5
    """Share of the peak rate reached in large decode batches."""
    launch_floor: Seconds = 0.0
    """Shortest time of one step."""


class Deployment(Record):
    """Everything that computes."""

    gpu: Gpu
    """The GPUs."""
    tensor_parallel: Degree = 1.0
    """GPUs over which one engine instance splits the model."""
    engine: Engine
    """The engine and how it stores KV."""
    reserve: Bytes = 4e9
    """Bytes per GPU for activations, graphs and buffers, beside weights and KV."""
    prefill: Prefill
    """Speed of prompt processing."""
    decode: Decode = Decode()
    """Speed of generation."""

    @model_validator(mode="after")
    def _whole_instances(self) -> Deployment:
        instances = np.asarray(self.gpu.count) / np.asarray(self.tensor_parallel)
        if np.any(instances < 1) or np.any(instances != np.floor(instances)):
            raise ValueError("gpu.count must be a whole multiple of tensor_parallel")
        return self

    @property
    def instances(self) -> Any:
        """Engine instances of the deployment."""
        return np.asarray(self.gpu.count) / np.asarray(self.tensor_parallel)
