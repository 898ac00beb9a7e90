"""Spreadsheet functions as plain functions: values from elsewhere, shapes, and what bad input says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvmodel
from kvmodel.errors import KvmodelError
from kvmodel.excel import functions as xl
from kvmodel.formulas.breakeven import break_even_tokens
from kvmodel.results.table import COLUMNS
from tests.system.test_config_json import rows

# the smallest study the language has: a full one takes seconds
STUDY = """\
kvmodel: 1
name: small
model: {preset: llama-3.1-8b}
deployment: {gpu: {preset: h100-sxm}, engine: {kind: logical}, prefill: {mfu: 0.5}}
tiers:
  hbm: {kind: hbm}
  dram: {kind: dram, capacity: 256 GiB, read_bandwidth: 50 GB/s}
workload:
  chat:
    kind: sessions
    arrivals: 0.05 /s
    first_tokens: 2k tokens
    new_tokens: 300 tokens
    output_tokens: 200 tokens
    turns: {geometric: {mean: 5}}
    pauses: {human: {lognormal: {median: 60 s, p90: 600 s}}}
prices: {preset: example-2026-11}
slo: {ttft: {p95: 2 s}, tpot: {p95: 100 ms}}
scenarios: {busy: {workload.chat.arrivals: 0.1 /s}}
compare: [no_reuse, all_tiers]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(STUDY)
    return path


# ------------------------------------------------------------------------------------------------ KV_BYTES_PER_TOKEN


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-3.1-70b", 2 * 80 * 8 * 128 * 2),  # 327,680: K and V, 80 layers, 8 heads of 128, 2 B
        ("deepseek-v3", 61 * (512 + 64) * 2),  # 70,272: latent and rope part
        ("gpt-oss-120b", 2 * 18 * 8 * 64 * 2),  # 36,864: the 18 of 36 layers without a window
        ("gemma-3-27b", 81_920),  # growing part as the engines' rules give it
        ("qwen3-next-80b-a3b", 24_576),
    ],
)
def test_growing_bytes_per_token(model, expected):
    assert xl.kv_bytes_per_token(model) == [[expected]]


def test_ranks_copy_heads_below_one_and_latents_always():
    # 8 KV heads split over 8 ranks but not over 16; a latent is copied on every rank
    assert xl.kv_bytes_per_token([["llama-3.1-70b"], ["deepseek-v3"]], "bf16", [[1, 8, 16]]) == [
        [327_680, 327_680, 655_360],
        [70_272, 8 * 70_272, 16 * 70_272],
    ]


def test_precision_halves_the_bytes():
    assert xl.kv_bytes_per_token("llama-3.1-70b", [["bf16", "fp8", None]]) == [[327_680, 163_840, 327_680]]


def test_a_config_file_is_read_like_a_preset(reference_data):
    readme = reference_data("model_configs/README.md")
    published = [(file, growing) for file, growing, remark in rows(readme) if "all layers" not in remark]
    for file, growing in published[:5]:
        path = readme.parent / file
        assert xl.kv_bytes_per_token(f'"{path}"') == [[growing]]  # quoted, as "copy as path" gives it


# ------------------------------------------------------------------------------------------------- KV_TOKENS_THAT_FIT


def test_tokens_that_fit_by_hand():
    # per GPU 81559 MiB x 0.9 - 4 GB, less a quarter of 70.6e9 parameters x 2 B; 163,840 B/token in fp8 over 4 ranks
    pool = 4 * (81_559 * 2**20 * 0.9 - 4e9) - 70.6e9 * 2
    assert xl.kv_tokens_that_fit("llama-3.1-70b", "h100-sxm", 4, 0.9, 4, "fp8") == [[math.floor(pool / 163_840)]]
    assert xl.kv_tokens_that_fit("llama-3.1-70b", "h100-sxm", 4, None, "", "fp8") == [[math.floor(pool / 163_840)]]


def test_a_unit_in_the_cell_beats_the_unit_of_the_argument():
    fit = xl.kv_tokens_that_fit("llama-3.1-8b", "h100-sxm", 1, 0.9, [[4, "4", "4 GB", "4000 MB", "4 GiB"]])
    assert fit[0][0] == fit[0][1] == fit[0][2] == fit[0][3] > fit[0][4]


def test_what_does_not_fit_says_what_would_and_leaves_the_others():
    fit = xl.kv_tokens_that_fit("llama-3.1-70b", "h100-sxm", [[1], [4]])
    assert "does not fit" in fit[0][0] and "2 GPUs would hold the weights" in fit[0][0]
    assert fit[1][0] > 0


# ----------------------------------------------------------------------------------------------- KV_BREAK_EVEN_TOKENS


def test_the_bandwidth_below_which_no_prefix_is_worth_fetching():
    # dynamo issue 6101: 20,000 tokens of 2.4 GB against 0.9 s of recompute: 2.4 / 0.9 = 2.67 GB/s
    bytes_per_token, recompute = 2.4e9 / 20_000, 0.9 / 20_000
    assert xl.kv_break_even_tokens(0, [[2.6, 2.7]], bytes_per_token, recompute) == [[math.inf, 0]]
    # 0.1 s of look-up at 3 GB/s: 0.1 / (0.9 - 0.8) x 20,000 tokens
    assert xl.kv_break_even_tokens(0.1, 3, bytes_per_token, recompute)[0][0] == pytest.approx(20_000)


def test_attention_alone_makes_long_prefixes_worth_fetching():
    # fetch 1 s, free bytes, only a p^2 to recompute: p = sqrt(1 / 1e-8)
    assert xl.kv_break_even_tokens(1, 10, 0, 0, 1e-8)[0][0] == pytest.approx(10_000)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=4), st.lists(st.floats(0.1, 100), min_size=1, max_size=4))
def test_a_column_against_a_row_is_every_pair(fixed, bandwidths):
    block = xl.kv_break_even_tokens([[f] for f in fixed], [bandwidths], 327_680, 1e-4, 1e-10)
    assert np.shape(block) == (len(fixed), len(bandwidths))
    for i, f in enumerate(fixed):
        for j, b in enumerate(bandwidths):
            assert (
                block[i][j]
                == xl.kv_break_even_tokens(f, b, 327_680, 1e-4, 1e-10)[0][0]
                == float(break_even_tokens(fixed=f, per_token=327_680 / (b * 1e9), linear=1e-4, attention=1e-10))
            )


# -------------------------------------------------------------------------------------------------------- KV_HIT_CURVE

# method of the second-order characteristic time, section 3: exact LRU simulation of 1.2 M turns, forward touch order
SIMULATED = {1_000: 0.0307, 4_000: 0.2927, 8_000: 0.5968, 16_000: 0.8804, 32_000: 0.9895}
WORKLOAD = {
    "arrivals_per_s": 1 / 120,
    "first_tokens": 300 * math.exp(0.8**2 / 2),
    "first_tokens_cv": math.sqrt(math.expm1(0.8**2)),
    "new_tokens": 40 * math.exp(0.5),
    "new_tokens_cv": math.sqrt(math.expm1(1)),
    "turns_mean": 20,
    "pause_median_s": 20,
    "pause_p90_s": 20 * math.exp(1.5 * 1.2815515655446),
}


def test_hit_curve_against_simulation():
    header, *table = xl.kv_hit_curve([[c] for c in SIMULATED], touch="forward", **WORKLOAD)
    assert header == ["capacity_tokens", "ceiling", "resident", "kept"]
    assert [row[0] for row in table] == list(SIMULATED)
    # 0.004 is the stated error of the closed form
    np.testing.assert_allclose([row[3] for row in table], list(SIMULATED.values()), atol=0.004)


def test_the_chain_multiplies_up_and_ends_at_the_ceiling():
    _, *table = xl.kv_hit_curve([[0, 5_000, 1e9]], **WORKLOAD)
    ceiling, resident, kept = np.array(table)[:, 1:].T
    np.testing.assert_allclose(resident, ceiling * kept)
    assert resident[0] == pytest.approx(0, abs=1e-6) and resident[2] == pytest.approx(ceiling[2], abs=0.002)
    assert ceiling[0] == ceiling[1] == ceiling[2]
    # geometric turns of mean m: E sum of returning over all contexts is (m - 1)/m, whatever the sizes
    assert ceiling[0] == pytest.approx(0.95)


def test_one_turn_has_nothing_to_keep():
    _, row = xl.kv_hit_curve("64k", 1, 1000, 100, 1, 10, 100)
    assert row[:3] == [64_000, 0, 0] and math.isnan(row[3])


# --------------------------------------------------------------------------------------------------- KV_DRIVE_LIFETIME


def test_lifetime_by_hand():
    # 35,040 TB x 4 drives at 1 TB a day: 140,160 days of which a year has 365
    for drive in (35_040, "35040 TB", "35.04 PB", "micron-9550-max-6.4tb"):
        assert xl.kv_drive_lifetime(1000, drive, 4)[0][0] == pytest.approx(140_160 / 365)
    # 10 MB/s is 864 GB a day
    assert xl.kv_drive_lifetime("10 MB/s", 35_040)[0][0] == pytest.approx(35_040e12 / 864e9 / 365)


def test_garbage_collection_is_not_counted_twice():
    # 74,200 TB sequential over 35,040 TB random is inside the rating: writes that amplify as much live as rated
    inside = 74_200 / 35_040
    years = xl.kv_drive_lifetime(1000, "micron-9550-max-6.4tb", 1, [[None, inside, 1, 2 * inside]])[0]
    np.testing.assert_allclose(np.array(years) / years[0], [1, 1, inside, 0.5])


def test_a_drive_without_rating_is_named():
    with pytest.raises(KvmodelError, match="'kioxia-gp-series' states no rated writes"):
        xl.kv_drive_lifetime(1000, "kioxia-gp-series")


# ------------------------------------------------------------------------------------------------------------- KV_PLAN


def test_plan_is_the_result_table(study):
    header, *table = xl.kv_plan(str(study))
    frame = kvmodel.plan(kvmodel.load_study(study)).to_frame()
    assert header == list(frame.columns) and header[: len(COLUMNS)] == list(COLUMNS)
    assert len(table) == len(frame)
    np.testing.assert_array_equal([row[5] for row in table], frame["value"].to_numpy())


def test_plan_of_a_scenario_and_filters(study):
    base = xl.kv_plan(str(study), None, "reuse.*", "all_tiers")
    busy = xl.kv_plan(str(study), "busy", "reuse.prompt_rate", "all_tiers")
    assert {row[4].split(".")[0] for row in base[1:]} == {"reuse"} and {row[1] for row in base[1:]} <= {"all_tiers", ""}
    assert [row[0] for row in busy[1:]] == ["busy"]
    rate = next(row[5] for row in base if row[4] == "reuse.prompt_rate")
    assert busy[1][5] == pytest.approx(2 * rate)


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xl.kv_bytes_per_token("llama-3.1-7b"), "no preset 'llama-3.1-7b' in llms; did you mean"),
        (lambda: xl.kv_bytes_per_token(None), "model is blank"),
        (lambda: xl.kv_bytes_per_token("llama-3.1-70b", "bf17"), "bf17"),
        (lambda: xl.kv_bytes_per_token("llama-3.1-70b", None, 2.5), "tensor_parallel: must be a whole number, got 2.5"),
        (lambda: xl.kv_bytes_per_token("llama-3.1-70b", None, True), "tensor_parallel: True is not a plain number"),
        (
            lambda: xl.kv_tokens_that_fit("llama-3.1-8b", "h100-sxm", [[1], [0]]),
            "tensor_parallel (row 2, column 1): must be at least 1",
        ),
        (
            lambda: xl.kv_tokens_that_fit("llama-3.1-8b", "h100-sxm", 1, None, "2G"),
            "reserve_gb: '2G' does not say of what",
        ),
        (
            lambda: xl.kv_tokens_that_fit([["llama-3.1-8b"]] * 2, "h100-sxm", [[1], [2], [4]]),
            "the ranges do not fit together (model 2 x 1, tensor_parallel 3 x 1)",
        ),
        (lambda: xl.kv_break_even_tokens(0, "3 s", 1, 1), "bandwidth_gb_per_s: '3 s' is a time; expected a bandwidth"),
        (lambda: xl.kv_break_even_tokens(0, 0, 1, 1), "bandwidth_gb_per_s: must be more than 0"),
        (lambda: xl.kv_break_even_tokens(math.nan, 1, 1, 1), "fixed_seconds: nan is not a time"),
        (lambda: xl.kv_hit_curve(1, 1, 1, 1, 2, 10, 5), "pause_p90_s must not be below pause_median_s"),
        (
            lambda: xl.kv_hit_curve(1, [[1, 2]], 1, 1, 2, 10, 50),
            "arrivals_per_s must be one cell, got a range of 1 x 2",
        ),
        (lambda: xl.kv_hit_curve(1, 1, 1, 1, 2, 10, 50, touch="sideways"), "touch must be reverse or forward"),
        (lambda: xl.kv_drive_lifetime(1, "micron-9550"), "no preset 'micron-9550' in drives"),
        (lambda: xl.kv_drive_lifetime([[1, 2], [3]], 1), "rows of equal length"),
        (lambda: xl.kv_plan("missing.yaml"), "missing.yaml: there is no such file"),
    ],
)
def test_bad_input_gives_one_clear_text(call, message):
    with pytest.raises(KvmodelError) as error:
        call()
    assert message in str(error.value)


def test_bad_filters_of_a_plan_name_what_there_is(study):
    with pytest.raises(KvmodelError, match="there are no_reuse, all_tiers"):
        xl.kv_plan(str(study), None, None, "local")
    with pytest.raises(KvmodelError, match=r"no quantity matches 'reus'; there are .*reuse\.\*"):
        xl.kv_plan(str(study), None, "reus")
    with pytest.raises(KvmodelError, match="unknown scenario 'quiet'"):
        xl.kv_plan(str(study), "quiet")
