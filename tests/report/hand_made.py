"""A study and a result table made by hand, small enough to check every number on the page against it."""

from __future__ import annotations

import numpy as np

from kvmodel.results.table import Axis, Row, Table
from kvmodel.study.load import parse_study

NAME = "本地 NVMe 值得吗? <b>A & B</b> </script><!--"

STUDY = f"""
kvmodel: 1
name: "{NAME}"
model: {{name: Dense, kv_dtype: fp8, parameters: 8e9, attention: [
  {{kind: full, layers: 32, kv_heads: 8, query_heads: 32, k_dim: 128, v_dim: 128}}]}}
deployment:
  gpu: {{preset: h100-sxm, count: 2}}
  engine: {{kind: logical}}
  reserve: 4 GB
  prefill: {{mfu: 0.5}}
tiers:
  hbm: {{kind: hbm}}
  dram: {{kind: dram, preset: ddr5-8ch, capacity: 1 TiB}}
  nvme: {{kind: nvme, preset: nvme-gen5-tlc, capacity: 6.4 TB, count: 4, rated_writes: 35 PB}}
workload:
  chat: {{kind: sessions, arrivals: 0.1 /s, first_tokens: 2k tokens, new_tokens: 200 tokens, output_tokens: 300 tokens,
         turns: {{geometric: {{mean: 8}}}}, pauses: {{person: {{constant: 60 s}}}}}}
slo: {{ttft: {{p95: 2 s}}, tpot: {{p95: 50 ms}}}}
prices: {{preset: example-2026-11}}
"""

ARMS = ("no_reuse", "local_reuse", "all_tiers")
TIERS = ("hbm", "dram", "nvme")
GIB, TIB = 2.0**30, 2.0**40


def study(extra: str = ""):
    """The study that goes with the table."""
    return parse_study(STUDY + extra)


def row(quantity, value, unit="", **where):
    """A row with a definition of its own."""
    return Row(quantity, value, unit, f"definition of {quantity}", **where)


def table(case="base", curves=True, cost=(np.inf, 0.9, 0.36), axes=(), **about):
    """Rows of every kind a plan gives, with the given cost per arm."""
    rows = [
        row("size.growing_bytes_per_token", 65536.0, "B/token"),
        row("capacity.hbm_pool", 50 * GIB, "B", tier="hbm"),
        row("workload.session_rate", 0.1, "/s", population="chat"),
        row("working_set.active", 3 * GIB, "B"),
        row("time.typical_prefix", 3210.0, "token"),
        row("time.recompute", 0.123, "s"),
        row("endurance.write_rate", 4e8, "B/s", tier="nvme"),
        row("endurance.write_budget", 1e9, "B/s", tier="nvme"),
        row("endurance.daily_writes", 3.456e13, "B", tier="nvme"),
        row("endurance.drive_writes_per_day", 1.35, tier="nvme"),
        row("endurance.lifetime", 3.9e8, "s", tier="nvme", flags=("amplification assumed",)),
    ]
    for k, tier in enumerate(TIERS):
        rows += [
            row("capacity.bytes", 4.0**k * 100 * GIB, "B", tier=tier),
            row("capacity.tokens", 4.0**k * 1e6, "token", tier=tier),
        ]
    for k, tier in enumerate(TIERS[1:], start=1):
        rows += [
            row("time.fetch", 0.01 * 4**k, "s", tier=tier),
            row("breakeven.tokens", 100.0 * k, "token", tier=tier),
            row("breakeven.tokens_idle", 90.0 * k, "token", tier=tier),
            row("load.tier_utilisation", 0.1 * k, tier=tier, flags=(f"near saturation <{tier}>",)),
        ]
    for k, arm in enumerate(ARMS):
        shares = (0.8, 0.3 * k, 0.25 * k)
        for step, share in zip(("ceiling", "resident", "timely"), shares, strict=True):
            rows += [row(f"reuse.{step}", share, arm=arm), row(f"reuse.{step}", share, arm=arm, population="chat")]
            rows += [row(f"reuse.{step}", share / 3, arm=arm, tier=t) for t in TIERS] if step != "ceiling" else []
        rows += [
            row("latency.ttft_mean", 0.5 / (1 + k), "s", arm=arm),
            row("cost.rate", 0.002 * (1 + k), "USD/s", arm=arm),
            row("goodput.largest_session_rate", 0.02 * k, "/s", arm=arm, flags=("bound by: TTFT limit",)),
            row("goodput.qualified_sessions_per_second", 0.015 * k, "/s", arm=arm),
            row("cost.per_qualified_session", cost[k], "USD", arm=arm),
        ]
    rows.append(row("target.met", 1.0, tier="nvme", flags=("met",)))
    named = tuple(Row(**{**vars(r), "case": case}) for r in rows)
    return Table(
        named,
        axes,
        {
            "name": NAME,
            "study": "my study.yaml",
            "study_sha256": "0123abcd",
            "kvmodel": "0.0.0",
            "seed": 7,
            "draws": 0,
            "scenarios": [],
            "overrides": {},
            "arms": list(ARMS),
            "tiers": list(TIERS),
            **about,
        },
        {"capacity:nvme": capacity_curve(), "prefix": prefix_curve()} if curves else {},
    )


def capacity_curve(knee=1.6 * TIB, here=6.4 * TIB, flags=()):
    """Reuse and cost over the capacity of one tier."""
    x = here * np.geomspace(1 / 64, 16, 11)
    grown = x / (x + TIB)
    rows = (
        row("reuse.ceiling", np.full(11, 0.8), arm="all_tiers"),
        row("reuse.resident", 0.7 * grown, arm="all_tiers"),
        row("reuse.timely", 0.6 * grown, arm="all_tiers"),
        row(
            "cost.per_qualified_session",
            np.where(grown < 0.15, np.inf, 0.3 + (grown - 0.5) ** 2),
            "USD",
            arm="all_tiers",
        ),
        row("knee.capacity", knee, "B", tier="nvme", flags=flags),
        row("knee.low", 0.8 * knee, "B", tier="nvme"),
        row("knee.high", 1.2 * knee, "B", tier="nvme"),
        row("capacity.here", here, "B", tier="nvme"),
    )
    return Table(rows, (Axis("capacity", x, "B"),))


def prefix_curve():
    """Recompute against fetch; nvme never wins."""
    x = np.geomspace(64, 2**20, 15)
    rows = (
        row("time.recompute", 1e-4 * x, "s"),
        row("time.fetch", 0.05 + 1e-6 * x, "s", tier="dram"),
        row("time.fetch", 2e-4 * x, "s", tier="nvme"),
        row("breakeven.tokens", 0.05 / 9.9e-5, "token", tier="dram"),
        row("breakeven.tokens", np.inf, "token", tier="nvme"),
    )
    return Table(rows, (Axis("prefix", x, "token"),))
