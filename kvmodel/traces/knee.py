"""Where a hit curve bends, in three senses that must not be mixed up.

Economic knee: the capacity beyond which one more block earns fewer hits than its rent is worth, read off
the concave hull of the curve. Cliff: a capacity just below which a working set does not fit and just above
which it does. Geometric knee: the point farthest above the chord of the normalised curve; only a label,
and it moves with the axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.hit_curve import HitCurve

CLIFF_WIDTH = 1.25
"""A cliff is a gain within this factor of capacity..."""
CLIFF_SHARE = 0.25
"""...of at least this share of all hits an infinite cache has."""


@dataclass(frozen=True)
class Hull:
    """Corners of the smallest concave curve above a hit curve, from capacity 0 [blocks] and 0 hits.

    `slope[k]` is the gain in hits per block on the way to corner k (infinite for corner 0): a mix of two
    sizes, by time or by partition, reaches every point of the hull.
    """

    capacity_blocks: np.ndarray
    hits: np.ndarray
    slope: np.ndarray


def concave_hull(curve: HitCurve) -> Hull:
    """The hull of a curve, found by one scan from small to large."""
    corners = [(0, 0)]
    for point in zip(curve.capacity_blocks.tolist(), curve.hits.tolist(), strict=True):
        while len(corners) > 1 and _bends_up(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    capacity, hits = np.array(corners, dtype=np.int64).T
    slope = np.concatenate([[np.inf], np.diff(hits) / np.diff(capacity)])
    return Hull(capacity, hits, slope)


def _bends_up(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])


@dataclass(frozen=True)
class EconomicKnee:
    """`capacity_blocks` is worth its rent for any price between `lowest` and `highest` [hits per block,
    whole trace].
    """

    capacity_blocks: int
    lowest: float
    highest: float


def economic_knee(hull: Hull, hits_per_block: float) -> EconomicKnee:
    """Largest capacity whose last block still earns its rent, with the rent stated in hits a block must
    earn over the trace: (rent of a block over the trace) / (value of one block hit). Zero rent: everything
    that ever hits.
    """
    kept = int(np.searchsorted(-hull.slope, -hits_per_block, side="right")) - 1
    beyond = hull.slope[kept + 1] if kept + 1 < len(hull.slope) else 0.0
    return EconomicKnee(int(hull.capacity_blocks[kept]), float(beyond), float(hull.slope[kept]))


def geometric_knee(curve: HitCurve) -> int | None:
    """Capacity [blocks] farthest above the chord on a linear axis from 0 to the largest useful capacity."""
    if len(curve.capacity_blocks) < 2:
        return None
    rise = curve.hits / curve.hits[-1] - curve.capacity_blocks / curve.capacity_blocks[-1]
    return int(curve.capacity_blocks[np.argmax(rise)])


def capacity_for_share(curve: HitCurve, share: float) -> int | None:
    """Smallest capacity [blocks] with this share of the hits of an infinite cache; None when there are no
    hits.
    """
    if len(curve.hits) == 0:
        return None
    return int(curve.capacity_blocks[np.searchsorted(curve.hits, share * curve.hits[-1])])


@dataclass(frozen=True)
class Cliff:
    """Between these capacities [blocks] the curve gains this share of its ceiling."""

    below_blocks: int
    fits_blocks: int
    gained_share: float


def cliffs(curve: HitCurve) -> list[Cliff]:
    """Steep places of the curve, steepest first, none overlapping another."""
    if len(curve.hits) == 0:
        return []
    below = np.floor(curve.capacity_blocks / CLIFF_WIDTH).astype(np.int64)
    gained = (curve.hits - curve.hits_at(below)) / curve.hits[-1]
    found: list[Cliff] = []
    for k in np.argsort(-gained, kind="stable").tolist():
        if gained[k] < CLIFF_SHARE:
            break
        candidate = Cliff(int(below[k]), int(curve.capacity_blocks[k]), float(gained[k]))
        if all(candidate.fits_blocks < c.below_blocks or candidate.below_blocks > c.fits_blocks for c in found):
            found.append(candidate)
    return found
