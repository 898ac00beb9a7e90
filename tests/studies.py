"""A small study for tests, and the ways tests change it."""

from __future__ import annotations

from typing import Any

from kvmodel.results.table import Table
from kvmodel.study.load import LoadedStudy, parse_study
from kvmodel.study.run import plan

STUDY = """
kvmodel: 1
name: test
model: {preset: llama-3.1-8b}
deployment:
  gpu: {preset: h100-sxm, count: 2}
  tensor_parallel: 1
  engine: {kind: vllm, version: "0.20.2", block_tokens: 16, memory_fraction: 0.9}
  prefill: {mfu: 0.5, constant: 10 ms}
tiers:
  hbm:  {kind: hbm}
  dram: {kind: dram, preset: ddr5-8ch, capacity: 256 GiB}
  nvme: {kind: nvme, preset: micron-9550-max-3.2tb, count: 2}
workload:
  chat:
    kind: sessions
    arrivals: 0.2 /s
    first_tokens: 1.5k tokens
    new_tokens: {lognormal: {median: 300 tokens, p90: 2k tokens}}
    output_tokens: 250 tokens
    turns: {geometric: {mean: 8}}
    pauses:
      tool:  {share: 0.7, lognormal: {median: 10 s, p90: 60 s}}
      human: {share: 0.3, lognormal: {median: 300 s, p90: 3000 s}}
  system: {kind: shared_prefix, tokens: 2k tokens, variants: 20, popularity: {zipf: 0.9}}
slo: {ttft: {p95: 2 s}, tpot: {p95: 50 ms}}
prices: {preset: example-2026-11}
"""


def study(**changes: Any) -> LoadedStudy:
    """The study with dotted paths changed; '__' in a keyword stands for '.'."""
    return parse_study(STUDY, "test.yaml", {path.replace("__", "."): value for path, value in changes.items()})


def planned(**changes: Any) -> Table:
    """Its plan."""
    return plan(study(**changes))
