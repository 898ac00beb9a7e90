"""Laws every plan obeys, whatever its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodel.analyses.quantities import QUANTITIES
from kvmodel.errors import MissingNumberError
from tests.studies import planned, study

FREE = {"lookup": 0, "latency": 0, "read_bandwidth": 1e15}
FREE_AND_INSTANT = {
    "tiers__dram": {"kind": "dram", "capacity": "1000 TiB", **FREE},
    "tiers__nvme": {"kind": "nvme", "capacity": "100000 TiB", "rated_writes": "1e9 TB", **FREE},
    "deployment__gpu__host_link": 1e15,
}


@pytest.fixture(scope="module")
def table():
    return planned()


@pytest.mark.parametrize("step", ["reuse.resident", "reuse.timely", "reuse.saved_prefill"])
def test_tiers_sum_to_the_total(table, step):
    total = table.value(step, arm="all_tiers", tier="", population="")
    parts = [row.value for row in table.select(quantity=step, arm="all_tiers", population="") if row.tier]
    assert len(parts) == 3
    assert total == pytest.approx(sum(parts), rel=1e-12)


@pytest.mark.parametrize("step", ["reuse.ceiling", "reuse.resident", "reuse.timely"])
def test_populations_sum_to_the_total(table, step):
    total = table.value(step, arm="all_tiers", tier="", population="")
    parts = [row.value for row in table.select(quantity=step, arm="all_tiers", tier="") if row.population]
    assert len(parts) == 2
    assert total == pytest.approx(sum(parts), rel=1e-9)


def test_chain_only_loses(table):
    for arm in ("no_reuse", "local_reuse", "all_tiers"):
        ceiling, resident, timely = (
            table.value(f"reuse.{step}", arm=arm, tier="", population="") for step in ("ceiling", "resident", "timely")
        )
        assert 0 <= timely <= resident <= ceiling + 1e-12 <= 1


def test_money_multiplies_up(table):
    rate = table.value("cost.rate", arm="all_tiers")
    parts = [row.value for row in table.select(quantity="cost.rate", arm="")]
    assert rate == pytest.approx(sum(parts), rel=1e-12)
    assert table.value("cost.rate", arm="local_reuse") == table.value("cost.rate", tier="hbm")
    qualified = table.value("goodput.qualified_sessions_per_second", arm="all_tiers")
    assert table.value("cost.per_qualified_session", arm="all_tiers") * qualified == pytest.approx(rate, rel=1e-12)


def test_capacity_multiplies_up(table):
    per_token = table.value("size.growing_bytes_per_token")
    assert per_token == 131_072  # Llama-3.1-8B, bf16: 2 x 32 layers x 8 heads x 128 x 2 bytes
    for tier in ("hbm", "dram", "nvme"):
        nbytes, tokens = (table.value(f"capacity.{what}", tier=tier) for what in ("bytes", "tokens"))
        assert nbytes == pytest.approx(tokens * per_token, rel=1e-12)
    assert table.value("capacity.bytes", tier="dram") == 256 * 2**30
    assert table.value("capacity.bytes", tier="nvme") == 2 * 3.2e12


def test_no_reuse_offered_is_the_no_reuse_arm_exactly():
    """Sessions of one turn without a shared prefix: nothing was ever computed before."""
    text_changes = {
        "workload": {
            "once": {
                "kind": "sessions",
                "arrivals": "2 /s",
                "first_tokens": {"lognormal": {"median": 1000, "p90": 4000}},
                "new_tokens": 0,
                "output_tokens": 100,
                "turns": 1,
                "pauses": {"none": {"constant": "1 s"}},
            }
        }
    }
    found = planned(**text_changes)
    same = [
        row.quantity
        for row in found.select(arm="no_reuse")
        if row.quantity.startswith(("latency.", "goodput.", "reuse.")) and not row.population
    ]
    assert len(same) > 8
    for quantity in same:
        for arm in ("local_reuse", "all_tiers"):
            np.testing.assert_array_equal(
                found.value(quantity, arm=arm, tier="", population=""),
                found.value(quantity, arm="no_reuse", tier="", population=""),
            )


def test_free_and_instant_tiers_give_the_ceiling():
    found = planned(**FREE_AND_INSTANT)
    ceiling = found.value("reuse.ceiling", arm="all_tiers", tier="", population="")
    timely = found.value("reuse.timely", arm="all_tiers", tier="", population="")
    assert timely == pytest.approx(ceiling, abs=2e-3)  # the stated quadrature error of the closed form


@settings(max_examples=8)
@given(small=st.floats(1e9, 3e12), factor=st.floats(1.0, 50.0), chain=st.sampled_from(["inclusive", "exclusive"]))
def test_more_capacity_never_lowers_ceiling_or_resident(small, factor, chain):
    less, more = (
        planned(tiers__dram__capacity=c, compare=["all_tiers"], slo=None, policy={"chain": chain})
        for c in (small, small * factor)
    )
    for step in ("reuse.ceiling", "reuse.resident"):
        low, high = (t.value(step, arm="all_tiers", tier="", population="") for t in (less, more))
        assert high >= low - 2e-3


def test_longer_drives_life_with_fewer_writes():
    everything, second = (
        planned(policy={"admission": {"second_use": flag}}, compare=["all_tiers"], slo=None) for flag in (False, True)
    )
    assert second.value("endurance.write_rate", tier="nvme") < everything.value("endurance.write_rate", tier="nvme")
    for found in (everything, second):
        life = found.value("endurance.lifetime", tier="nvme")
        budget, rate = (found.value(f"endurance.{what}", tier="nvme") for what in ("write_budget", "write_rate"))
        # lifetime x rate = target x budget: the same rated wear
        assert life * rate == pytest.approx(5 * 365 * 86_400 * budget, rel=1e-12)


def test_a_hit_that_loses_is_recomputed_and_not_timely():
    found = planned(tiers__nvme__read_bandwidth="1 MB/s", tiers__dram__capacity="1 GiB", compare=["all_tiers"])
    assert found.value("reuse.resident", arm="all_tiers", tier="nvme", population="") > 0.05
    assert found.value("reuse.timely", arm="all_tiers", tier="nvme", population="") == 0
    assert found.value("load.tier_utilisation", tier="nvme") == 0  # nothing is fetched in vain


def test_a_model_that_does_not_fit_says_what_would():
    found = planned(model={"preset": "llama-3.1-70b"})
    (row,) = found.select(quantity="capacity.hbm_pool").rows
    assert row.value < 0
    # 141.1 GB of bf16 weights; one GPU gives 81,559 MiB x 0.9 - 4 GB = 73.0 GB, two give 145.9 GB
    assert "tensor_parallel 2 would fit" in row.flags[0]
    assert not found.select(quantity="cost.per_qualified_session").rows


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prices": {}}, "prices.gpu"),
        ({"prices__dram": None}, "prices.dram"),
        ({"tiers__dram": {"kind": "dram", "capacity": "1 TiB"}}, "tiers.dram.read_bandwidth"),
        ({"tiers__dram": {"kind": "dram", "read_bandwidth": "1 GB/s"}}, "tiers.dram.capacity"),
        ({"tiers__nvme": {"kind": "nvme", "capacity": "1 TB", "read_bandwidth": "5 GB/s"}}, "tiers.nvme.rated_writes"),
    ],
)
def test_a_missing_number_is_refused_by_name(change, named):
    with pytest.raises(MissingNumberError, match=named.replace(".", r"\.")):
        planned(**change)


def test_sweeps_equal_single_runs():
    """A swept number gives at every point what a study with that one number gives."""
    values = ["64 GiB", "256 GiB", "1 TiB"]
    swept = planned(sweep={"tiers.dram.capacity": values})
    singles = [planned(tiers__dram__capacity=value) for value in values]
    for row in swept:
        for i, single in enumerate(singles):
            (alone,) = (r for r in single if r.key == row.key)
            np.testing.assert_allclose(np.broadcast_to(row.value, (3,))[i], alone.value, rtol=1e-9, equal_nan=True)


def test_prices_drawn_leave_everything_else_alone():
    drawn = planned(uncertain={"prices.nvme": {"loguniform": ["0.1 USD/GB", "0.4 USD/GB"]}}, monte_carlo={"draws": 50})
    alone = planned()
    assert np.ndim(drawn.value("reuse.timely", arm="all_tiers", tier="", population="")) <= 1
    np.testing.assert_allclose(
        np.unique(drawn.value("reuse.timely", arm="all_tiers", tier="", population="")),
        alone.value("reuse.timely", arm="all_tiers", tier="", population=""),
    )
    cost = drawn.value("cost.rate", tier="nvme")
    assert cost.shape == (50,) and len(np.unique(cost)) == 50


def test_study_repr_says_what_it_is():
    assert "Llama-3.1-8B" in repr(study()) and "hbm > dram > nvme" in repr(study())


def test_every_quantity_told_is_declared_with_its_dimension():
    limits = {"ttft": {"p95": "2 s"}, "tpot": {"p95": "50 ms"}, "end_to_end": {"p95": "30 s"}}
    split = {"policy": {"pinned": ["system"]}, "workload__chat__identity": {"adapter": 2}}
    told = {row.quantity: row.unit for row in planned(slo=limits, **split)}
    assert told == QUANTITIES


def test_a_slow_tier_never_makes_an_arm_worse_than_without_it():
    """What is not worth fetching from below is still found above, as far as it is there."""
    slow = {"dram": {"kind": "dram", "capacity": "2 TiB", "read_bandwidth": "1 MB/s"}}
    found = planned(tiers={"hbm": {"kind": "hbm"}, **slow}, compare=["local_reuse", "all_tiers"])
    for quantity in ("reuse.timely", "reuse.saved_prefill"):
        alone, both = (found.value(quantity, arm=arm, tier="", population="") for arm in ("local_reuse", "all_tiers"))
        assert both == pytest.approx(alone, rel=1e-6)
    assert found.value("reuse.timely", arm="all_tiers", tier="dram", population="") == pytest.approx(0, abs=1e-12)


def test_an_end_to_end_limit_only_takes_away():
    limits = {"ttft": {"p95": "2 s"}, "tpot": {"p95": "50 ms"}}
    without, within = planned(slo=limits), planned(slo={**limits, "end_to_end": {"p95": "4 s"}})
    for arm in ("local_reuse", "all_tiers"):
        for quantity in ("goodput.largest_session_rate", "latency.qualified"):
            assert within.value(quantity, arm=arm) <= without.value(quantity, arm=arm) + 1e-12
    assert without.value("latency.ttft_in_time", arm="all_tiers") == within.value(
        "latency.ttft_in_time", arm="all_tiers"
    )


def test_the_operating_rate_is_within_the_largest(table):
    for arm in ("local_reuse", "all_tiers"):
        largest, operating, qualified = (
            table.value(f"goodput.{name}", arm=arm)
            for name in ("largest_session_rate", "operating_rate", "qualified_sessions_per_second")
        )
        assert 0 < qualified <= operating <= largest


def test_a_tier_of_every_instance_is_a_share_of_its_devices():
    """Two instances with half the memory each keep no more than one shared memory of the whole."""
    shared, split = (planned(tiers__dram__scope=scope, compare=["all_tiers"]) for scope in ("node", "instance"))
    assert split.value("capacity.bytes", tier="dram") == shared.value("capacity.bytes", tier="dram")
    assert split.value("cost.rate", tier="dram") == shared.value("cost.rate", tier="dram")
    assert 2 * split.value("capacity.retained_tokens", tier="dram") == pytest.approx(
        shared.value("capacity.retained_tokens", tier="dram")
    )


def test_a_tier_without_room_changes_nothing():
    """A shared tier of 0 B below the private memories of two instances: no reuse comes from pooling them."""
    empty = planned(tiers__nvme={"kind": "dram", "capacity": 0, "read_bandwidth": "60 GB/s"}, compare=["all_tiers"])
    without = planned(tiers={"hbm": {"kind": "hbm"}, "dram": study().data["tiers"]["dram"]}, compare=["all_tiers"])
    for where in ({}, {"population": "chat"}, {"population": "system"}):
        place = {"arm": "all_tiers", "tier": "", "population": "", **where}
        assert empty.value("reuse.resident", **place) == without.value("reuse.resident", **place)
    nothing = planned(tiers__dram__capacity=0, compare=["all_tiers"])
    assert nothing.value("reuse.resident", arm="all_tiers", tier="dram", population="") == 0


def test_nothing_said_is_nothing_reused():
    """Sessions of no tokens at all: no reuse, and no division by zero on the way (warnings are errors here)."""
    silent = planned(
        workload={
            "chat": {**study().data["workload"]["chat"], "first_tokens": 0, "new_tokens": 0, "output_tokens": 0},
            "system": study().data["workload"]["system"],
        },
        compare=["all_tiers"],
    )
    assert silent.value("reuse.ceiling", arm="all_tiers", tier="", population="chat") == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("arrivals", ["0.5 /s", "1.5 /s", "4 /s", "6 /s", "12 /s"])
def test_admitting_more_never_finds_less_through_saturation(arrivals):
    """What is refused is computed again, which keeps more KV active: from an idle deployment to an overloaded one."""
    shares = np.linspace(0.02, 1.0, 50)
    sweep = {"policy.admission.probability": shares.tolist()}
    table = planned(sweep=sweep, workload__chat__arrivals=arrivals, compare=["all_tiers"])
    timely = table.value("reuse.timely", arm="all_tiers", tier="", population="")
    assert np.all(np.diff(timely) > -1e-3)


def test_more_load_never_finds_more_through_saturation():
    """Active KV rises to its least fixed point, and takes all of the GPUs' memory where there is none below that."""
    sweep = {"workload.chat.arrivals": {"geomspace": ["0.2 /s", "40 /s", 60]}}
    table = planned(sweep=sweep, compare=["local_reuse"])
    found = table.value("reuse.resident", arm="local_reuse", tier="", population="")
    used = table.value("latency.prefill_utilisation", arm="local_reuse")
    assert used.min() < 0.2 and used.max() > 1.0
    assert np.all(np.diff(found) < 1e-3) and found[0] > 0.1 and found[-1] < 1e-9


@pytest.mark.parametrize(("arrivals", "said"), [("0.2 /s", None), ("0.4 /s", "metastable"), ("0.5 /s", "overloaded")])
def test_a_second_bad_steady_state_is_flagged(arrivals, said):
    """Between a load at which even a cold deployment serves everything and one that nothing serves lies one that only
    a warm deployment does: without any hits its prefill saturates."""
    table = planned(workload__chat__arrivals=arrivals, compare=["no_reuse", "local_reuse"])
    (row,) = (r for r in table.select(quantity="reuse.resident", arm="local_reuse") if not r.tier and not r.population)
    words = {flag.split(":")[0] for flag in row.flags} & {"metastable", "overloaded"}
    assert words == ({said} if said else set())
    cold = table.value("latency.prefill_utilisation", arm="no_reuse")
    warm = table.value("latency.prefill_utilisation", arm="local_reuse")
    if said == "metastable":
        assert warm < 0.6 < 0.8 < cold


def test_a_tier_keeps_what_its_writes_can_take():
    """By hand: sessions create 1,750 + 7 x (300 exp(1.4803^2 / 2) + 250) tokens of 131,072 B, at 0.2 /s 256 MB/s. Two
    drives that take a quarter of it each keep half the contexts."""
    new = 300 * np.exp((np.log(2000 / 300) / 1.2815516) ** 2 / 2)
    asked = 0.2 * (1750 + 7 * (new + 250)) * 131_072
    whole = planned(compare=["all_tiers"])
    part = planned(compare=["all_tiers"], tiers__nvme__write_bandwidth=asked / 4)
    none = planned(compare=["all_tiers"], tiers__nvme__write_bandwidth=1.0)
    kept = [t.value("reuse.kept", arm="all_tiers", population="chat") for t in (none, part, whole)]
    assert kept[1] - kept[0] == pytest.approx((kept[2] - kept[0]) / 2, rel=0.02) and kept[2] > kept[0] + 0.02
    (row,) = (r for r in part.select(quantity="reuse.resident", arm="all_tiers") if not r.tier and not r.population)
    assert any("nvme: its write bandwidth takes 50%" in flag for flag in row.flags)


def test_typical_prefix_is_that_of_the_mean_returning_turn():
    """Half the turns of a two-turn population return, three of four of a four-turn one; weights 1 and 3 per session."""
    one = {**study().data["workload"]["chat"], "new_tokens": 0, "output_tokens": 0}
    two = planned(
        workload={
            "a": {**one, "first_tokens": 1000, "turns": {"equally_likely": [2]}},
            "b": {**one, "first_tokens": 3000, "turns": {"equally_likely": [4]}},
        },
        compare=["all_tiers"],
    )
    assert two.value("time.typical_prefix") == pytest.approx((1 * 1000 + 3 * 3000) / 4)
