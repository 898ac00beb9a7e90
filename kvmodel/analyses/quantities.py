"""Names of what a plan tells."""

from __future__ import annotations

# Every quantity a plan can tell, with its dimension: what a study's targets may name.
QUANTITIES = {
    "size.growing_bytes_per_token": "B/token", "size.fixed_bytes_per_sequence": "B", "size.replication": "",
    "capacity.hbm_pool": "B", "capacity.bytes": "B", "capacity.tokens": "token", "capacity.retained_tokens": "token",
    "workload.session_rate": "/s", "workload.turn_rate": "/s", "workload.returning_context": "token",
    "working_set.active": "B", "working_set.paused": "B", "working_set.shared_prefix": "B",
    "reuse.prompt_rate": "token/s", "reuse.ceiling": "", "reuse.resident": "", "reuse.timely": "", "reuse.kept": "",
    "reuse.saved_prefill": "",
    "latency.prefill_utilisation": "", "latency.ttft_mean": "s", "latency.tpot_mean": "s", "latency.batch": "",
    "latency.ttft_in_time": "", "latency.tpot_in_time": "", "latency.end_to_end_in_time": "", "latency.qualified": "",
    "time.typical_prefix": "token", "time.recompute": "s", "time.fetch": "s", "time.fetch_wait": "s",
    "time.path_bandwidth": "B/s",
    "breakeven.tokens": "token", "breakeven.tokens_idle": "token", "breakeven.bandwidth": "B/s",
    "load.tier_utilisation": "",
    "endurance.write_rate": "B/s", "endurance.daily_writes": "B", "endurance.drive_writes_per_day": "",
    "endurance.amplification": "", "endurance.rated_amplification": "", "endurance.lifetime": "s",
    "endurance.write_budget": "B/s",
    "retention.window": "s", "retention.window_unknown_law": "s", "retention.break_even": "s",
    "retention.returns_within": "", "retention.cost_per_stay": "USD", "retention.cost_if_dropped": "USD",
    "retention.cost_unknown_law": "USD",
    "goodput.largest_session_rate": "/s", "goodput.qualified_sessions_per_second": "/s", "goodput.operating_rate": "/s",
    "cost.rate": "USD/s", "cost.per_qualified_session": "USD",
}
