"""Write amplification against the field's vectors, a page-mapped drive simulated here, and the laws it must
obey.

Vectors are recognised by what their inputs say, so any numbers may stand in them. Simulated vectors are what
a drive does; where no formula claims to give it, this file's own simulation must.
"""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.formulas import mixed_streams as ms
from kvmodel.formulas import write_amplification as wa
from tests.theory_vectors import disagreements, vectors_of

SPARES = (1.07, 1.10, 1.15, 1.30, 1.50, 2.00)
ALPHAS = st.floats(1.01, 50.0)
SHARES = st.floats(0.01, 0.99)


class Drive:
    """Page-mapped flash drive with one write frontier: units are filled, the victim's valid pages go first.

    `objects` are groups of pages overwritten as one. All units count in `alpha`: the victim's pages are
    copied into a unit before anything new, so between two visits they see every unit filled.
    """

    def __init__(self, alpha, *, units=256, pages=32, greedy=True, object_pages=1, seed=1, shuffled=False):
        self.pages, self.greedy, self.size = pages, greedy, object_pages
        self.objects = round(units * pages / alpha / object_pages)
        self.alpha = units * pages / (self.objects * object_pages)
        self.random = random.Random(seed)
        self.slot = [-1] * (self.objects * object_pages)  # of each logical page
        self.page = [-1] * (units * pages)  # of each slot
        self.valid = [0] * units
        self.by_valid = [set() for _ in range(pages + 1)]  # closed units
        self.age = deque()
        self.closed = [False] * units
        self.erased = list(range(1, units))
        self.unit, self.offset, self.programmed = 0, 0, 0
        order = list(range(len(self.slot)))
        if shuffled:
            self.random.shuffle(order)
        for page in order:
            self.write(page)

    def write(self, page):
        while self.offset == self.pages:
            self.reclaim()
        old = self.slot[page]
        if old >= 0:
            unit = old // self.pages
            if self.closed[unit]:
                self.by_valid[self.valid[unit]].discard(unit)
                self.by_valid[self.valid[unit] - 1].add(unit)
            self.valid[unit] -= 1
        self.program(page)

    def program(self, page):
        slot = self.unit * self.pages + self.offset
        self.page[slot], self.slot[page] = page, slot
        self.valid[self.unit] += 1
        self.offset += 1
        self.programmed += 1

    def reclaim(self):
        self.closed[self.unit] = True
        self.by_valid[self.valid[self.unit]].add(self.unit)
        self.age.append(self.unit)
        if self.erased:
            self.unit, self.offset = self.erased.pop(), 0
            return
        victim = next(units for units in self.by_valid if units).pop() if self.greedy else self.age.popleft()
        self.by_valid[self.valid[victim]].discard(victim)
        first = victim * self.pages
        kept = [p for s, p in enumerate(self.page[first : first + self.pages], first) if p >= 0 and self.slot[p] == s]
        self.closed[victim], self.valid[victim] = False, 0
        self.unit, self.offset = victim, 0
        for page in kept:
            self.program(page)

    def amplification(self, chosen_object, *, settle=8, measure=8):
        """Pages programmed per page written, over `measure` times the live data after `settle` times."""
        for times in (settle, measure):
            self.programmed = 0
            for _ in range(times * self.objects):
                first = chosen_object() * self.size
                for page in range(first, first + self.size):
                    self.write(page)
        return self.programmed / (measure * self.objects * self.size)

    def uniform(self):
        return int(self.random.random() * self.objects)

    def hot_or_cold(self, hot_space, hot_writes):
        hot = round(self.objects * hot_space)

        def choose():
            if self.random.random() < hot_writes:
                return int(self.random.random() * hot)
            return hot + int(self.random.random() * (self.objects - hot))

        return choose


@pytest.mark.parametrize("alpha", SPARES)
def test_drive_with_uniform_writes_agrees(alpha):
    greedy, oldest = Drive(alpha), Drive(alpha, greedy=False)
    assert wa.greedy_amplification(greedy.alpha, 32) == pytest.approx(greedy.amplification(greedy.uniform), rel=0.02)
    assert wa.fifo_amplification(oldest.alpha) == pytest.approx(oldest.amplification(oldest.uniform), rel=0.02)


@pytest.mark.parametrize(("alpha", "space", "writes"), [(1.3, 0.1, 0.9), (1.15, 0.2, 0.8)])
def test_drive_with_hot_and_cold_writes_agrees(alpha, space, writes):
    drive = Drive(alpha, greedy=False)
    measured = drive.amplification(drive.hot_or_cold(space, writes), settle=16, measure=16)
    law = ms.shared_stream(drive.alpha, [writes, 1 - writes], [space, 1 - space]).amplification
    assert law == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("alpha", "space", "writes"), [(1.3, 0.1, 0.9), (1.15, 0.2, 0.8)])
def test_greedy_drive_with_hot_and_cold_writes_agrees(alpha, space, writes):
    drive = Drive(alpha)
    measured = drive.amplification(drive.hot_or_cold(space, writes), settle=16, measure=8)
    law = ms.greedy_shared_stream(drive.alpha, [writes, 1 - writes], [space, 1 - space], drive.pages).amplification
    assert law == pytest.approx(measured, rel=0.02)


def test_units_of_equal_pages_are_greedy_reclaim_of_uniform_writes():
    """Against the balance of whole pages, H_b - H_v = alpha (1 - v/b), solved by hand for b = 4 and v = 1 to 2."""
    harmonic = [0, 1, 1.5, 1.5 + 1 / 3, 25 / 12]
    for part in (0.0, 0.4, 1.0):
        v = 1 + part
        alpha = (harmonic[4] - (1 - part) * harmonic[1] - part * harmonic[2]) / (1 - v / 4)
        found = ms.greedy_shared_stream(alpha, [0.3, 0.7], [0.3, 0.7], 4).amplification
        assert found == pytest.approx(1 / (1 - v / 4), rel=2e-3)


def timed_out(alpha, used_again, in_use, idle, *, units=300, pages=32, seed=3):
    """Amplification of a log whose pages die on time: in use for zero or an exponential time, and `idle` more."""
    rng = np.random.default_rng(seed)
    mean = used_again * in_use + idle
    slots, rate = units * pages, units * pages / alpha / mean  # writes per second that keep the live data steady
    death, programmed, written, head, now = np.full(slots, -1.0), 0, 0, 0, 0.0
    for round_ in range(40):
        if round_ == 24:
            programmed = written = 0
        for _ in range(slots // 4):
            while death[head] > now:  # still alive: written again where it is, at the head of the log
                head, programmed = (head + 1) % slots, programmed + 1
            now += 1 / rate
            lives = idle + (rng.exponential(in_use) if rng.random() < used_again else 0.0)
            death[head] = now + lives
            head, programmed, written = (head + 1) % slots, programmed + 1, written + 1
    return programmed / written


@pytest.mark.parametrize(
    ("alpha", "used_again", "in_use", "idle"),
    [(1.3, 1.0, 1.0, 0.0), (1.3, 0.9, 1.0, 2.0), (1.15, 0.5, 1.0, 20.0), (1.07, 0.0, 1.0, 5.0)],
)
def test_a_log_of_data_that_time_out_agrees(alpha, used_again, in_use, idle):
    law = ms.idle_stream_amplification(alpha, [1.0], [used_again], [in_use], idle)
    assert law == pytest.approx(timed_out(alpha, used_again, in_use, idle), rel=0.02)


def test_data_that_die_at_random_are_the_shared_stream():
    r, s = np.array([0.9, 0.1]), np.array([0.1, 0.9])
    assert ms.idle_stream_amplification(1.3, r, [1.0, 1.0], s / r, 0.0) == pytest.approx(
        ms.shared_stream(1.3, r, s).amplification, rel=1e-9
    )


@given(st.floats(1.001, 10.0))
def test_spare_behind_an_amplification_is_its_inverse(alpha):
    assert wa.fifo_physical_over_logical(wa.fifo_amplification(alpha)) == pytest.approx(alpha, rel=1e-5)


@pytest.mark.parametrize("object_pages", [4, 12, 48])
def test_straddling_objects_are_estimated(object_pages):
    drive = Drive(1.15, object_pages=object_pages, shuffled=True)
    law = wa.object_amplification(drive.alpha, object_pages, drive.pages)
    assert law == pytest.approx(drive.amplification(drive.uniform, settle=16), rel=0.05)
    assert not wa.object_aligned(object_pages, drive.pages)


def test_aligned_objects_copy_nothing():
    drive = Drive(1.15, object_pages=64)
    assert drive.amplification(drive.uniform) == 1.0 == wa.object_amplification(drive.alpha, 64, drive.pages)


# What a vector's inputs say -> what the formulas answer, in the vector's words.


def hot_cold(i):
    alpha, r, s = i["alpha_physical_over_logical"], i["hot_write_fraction"], i["hot_space_fraction"]
    classes = alpha, [r, 1 - r], [s, 1 - s]
    if "streams" not in i:
        b = i["pages_per_block"]
        return {
            "waf_one_stream": ms.greedy_shared_stream(*classes, b).amplification,
            "waf_two_streams": wa.greedy_amplification(alpha, b),
        }  # one greedy pool equalises valid shares
    if i["streams"] == 1 and i["gc"].startswith("greedy"):
        return {"waf": ms.greedy_shared_stream(*classes, i["pages_per_block"]).amplification}
    if i["streams"] == 1:
        amplification, cycle = ms.shared_stream(*classes)
        return {"waf": amplification, "cycle_external_writes_over_logical": cycle}
    split = ms.best_spare_split(*classes)
    return {
        "waf_total": split.amplification,
        "spare_share_to_hot": split.spare_share[0],
        "waf_hot": split.stream_amplification[0],
        "waf_cold": split.stream_amplification[1],
        "waf_total_if_spare_split_in_proportion_to_size": ms.separate_streams_amplification(
            *classes, spare_share=[s, 1 - s]
        ),
    }


def answer(i):
    gc, rho = i.get("gc", ""), i.get("overprovisioning_factor_rho")
    alpha = i.get("alpha_physical_over_logical", None if rho is None else 1 + rho)
    if "soc_fraction_of_logical" in i:
        soc, spare = i["soc_fraction_of_logical"], i["device_op_fraction_of_logical"]
        own = spare if i.get("all_spare_usable_by_soc", True) else spare * soc  # else shared by size
        total, small, large = ms.segregated_cache(soc, own, i["soc_write_fraction"])
        return {"soc_dlwa": small, "loc_dlwa": large, "total_dlwa": total}
    if set(i) == {"overprovisioning_factor_rho"}:  # no reclaim is named: the closed form that is printed for it
        return {"waf": wa.agarwal_amplification(alpha)}
    if "hot_space_fraction" in i:
        return hot_cold(i)
    if "fraction_of_lbas_trimmed_or_never_written" in i:
        effective = wa.effective_physical_over_logical(alpha, i["fraction_of_lbas_trimmed_or_never_written"])
        return {"alpha_effective": effective, "waf": wa.fifo_amplification(effective)}
    if "object_pages" in i and gc.startswith("greedy"):
        return {"waf": wa.object_amplification(alpha, i["object_pages"], i["pages_per_block"])}
    if gc.startswith("greedy"):
        return {"waf": wa.greedy_amplification(alpha, i["pages_per_block"])}
    if gc.startswith("uniformly random"):
        return {"waf": wa.random_victim_amplification(alpha)}
    return {"waf": wa.fifo_amplification(alpha), "victim_valid_fraction": wa.fifo_victim_valid_share(alpha)}


def test_vectors(reference_data):
    mine = vectors_of(reference_data, "ssd_waf")
    assert disagreements(mine, lambda v: answer(v["inputs"])) == []


@given(ALPHAS, ALPHAS, st.integers(16, 4096), SHARES, SHARES)
def test_more_spare_never_amplifies_more(a, b, pages, r, s):
    few, many = np.sort([a, b])
    for law in (
        wa.fifo_amplification,
        wa.random_victim_amplification,
        lambda x: wa.greedy_amplification(x, pages),
        lambda x: wa.object_amplification(x, 24, pages),
        lambda x: ms.shared_stream(x, [r, 1 - r], [s, 1 - s]).amplification,
        lambda x: ms.best_spare_split(x, [r, 1 - r], [s, 1 - s]).amplification,
    ):
        assert 1.0 <= law(many) <= law(few) * (1 + 1e-9)


@given(ALPHAS, SHARES, SHARES, SHARES)
def test_no_split_of_spare_beats_the_best(alpha, r, s, x):
    writes, space = [r, 1 - r], [s, 1 - s]
    best = ms.best_spare_split(alpha, writes, space)
    assert best.spare_share.sum() == pytest.approx(1)
    assert best.amplification == pytest.approx(
        ms.separate_streams_amplification(alpha, writes, space, best.spare_share), rel=1e-6
    )
    assert best.amplification <= ms.separate_streams_amplification(alpha, writes, space, [x, 1 - x]) * (1 + 1e-9)
    assert best.amplification <= wa.fifo_amplification(alpha) * (1 + 1e-9)


@given(st.floats(1.01, 20.0), SHARES)
def test_classes_of_equal_heat_are_one_class(alpha, s):
    one, shares = wa.fifo_amplification(alpha), [s, 1 - s]
    assert ms.shared_stream(alpha, shares, shares).amplification == pytest.approx(one, rel=1e-9)
    assert ms.best_spare_split(alpha, shares, shares).amplification == pytest.approx(one, rel=1e-6)
    assert wa.greedy_amplification(alpha, 1e12) == pytest.approx(one, rel=1e-8)


@given(st.floats(0.01, 0.99))
def test_bucket_store_of_many_objects_is_the_fifo_relation(threshold):
    store = wa.bucket_store(threshold, 1e9)
    assert wa.fifo_amplification(1 / store.utilisation) == pytest.approx(store.amplification, rel=1e-5)


def test_bucket_store_by_hand():
    # four objects, compacted with two left: alive 4, 3 for 1/4 and 1/3 of a lifetime; 2 new per 7/12
    assert wa.bucket_store(0.5, 4) == pytest.approx((2.0, 0.5 / (7 / 12)))
    assert wa.bucket_store(1.0, 4) == (np.inf, 1.0)


def test_ends():
    for law in (
        wa.fifo_amplification,
        wa.random_victim_amplification,
        wa.agarwal_amplification,
        lambda a: wa.greedy_amplification(a, 64),
        lambda a: wa.object_amplification(a, 24, 64),
        lambda a: ms.shared_stream(a, [0.9, 0.1], [0.1, 0.9]).amplification,
        lambda a: ms.best_spare_split(a, [0.9, 0.1], [0.1, 0.9]).amplification,
    ):
        assert np.isinf(law(1.0))
    for law in (
        wa.fifo_amplification,
        wa.random_victim_amplification,
        lambda a: wa.greedy_amplification(a, 64),
        lambda a: ms.best_spare_split(a, [0.9, 0.1], [0.1, 0.9]).amplification,
    ):
        assert law(1e12) == pytest.approx(1.0)
    assert wa.indirection_amplification([4096, 16384, 20480], 16384) == pytest.approx([4.0, 1.0, 1.6])
    assert ms.segregated_cache(0.04, 0.07, 0.0).amplification == 1.0
    assert ms.best_spare_split(1.3, [1.0, 0.0], [0.1, 0.9]).amplification == pytest.approx(
        wa.fifo_amplification(4.0)
    )  # all spare to the only class written
    assert not wa.spare_valid(1.005) and wa.spare_valid(1.07)
    assert not wa.finite_unit_valid(1.3, 8) and wa.finite_unit_valid(1.07, 64)


def test_arrays_equal_scalars():
    alpha = np.array([[1.0], [1.07], [2.0]])
    pages = np.array([16, 64, 256])
    r, s = np.array([0.6, 0.9, 0.99]), np.array([0.3, 0.1, 0.02])
    split = ms.best_spare_split(alpha, np.stack([r, 1 - r])[:, None], np.stack([s, 1 - s])[:, None])
    one = ms.shared_stream(alpha, np.stack([r, 1 - r])[:, None], np.stack([s, 1 - s])[:, None])
    mixed = ms.greedy_shared_stream(alpha, np.stack([r, 1 - r])[:, None], np.stack([s, 1 - s])[:, None], pages)
    assert mixed.amplification.shape == (3, 3) and mixed.program_share.shape == (2, 3, 3)
    assert mixed.amplification[2, 1] == pytest.approx(
        ms.greedy_shared_stream(2.0, [0.9, 0.1], [0.1, 0.9], 64).amplification, rel=1e-6
    )
    greedy, objects = wa.greedy_amplification(alpha, pages), wa.object_amplification(alpha, 24, pages)
    assert split.amplification.shape == one.amplification.shape == greedy.shape == objects.shape == (3, 3)
    assert split.spare_share.shape == (2, 3, 3)
    for i, j in np.ndindex(3, 3):
        a, classes = alpha[i, 0], ([r[j], 1 - r[j]], [s[j], 1 - s[j]])
        assert greedy[i, j] == wa.greedy_amplification(a, pages[j])
        assert objects[i, j] == wa.object_amplification(a, 24, pages[j])
        assert split.amplification[i, j] == pytest.approx(ms.best_spare_split(a, *classes).amplification)
        assert one.amplification[i, j] == pytest.approx(ms.shared_stream(a, *classes).amplification)
