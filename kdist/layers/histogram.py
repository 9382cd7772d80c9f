"""`Histogram`: counts of values in fixed logarithmic bins, which add up exactly over replicas."""

import dataclasses

import numpy as np

CODES = 4096
"""Bins of a float32 by its upper 12 bits: sign, exponent, and three bits of the mantissa."""

_SIGN, _NORMAL, _INFINITE = 2048, 8, 2040
# Eight bins from a power of two to the next: each is at most an eighth of its values wide.
_MAGNITUDES = (np.arange(_NORMAL, _INFINITE + 1, dtype="uint32") << np.uint32(20)).view("float32")
_LIMITS = np.append(_MAGNITUDES[:-1].astype("float64"), 2.0**128)
EDGES = np.concatenate([-_LIMITS[::-1], _LIMITS])
"""The edges of the bins of every `Histogram`, float64."""


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """How many values are in each of the fixed bins.

    The edges are the numbers `m · 2**e` with `m` in 1, 1.125, 1.25 … 1.875, of both signs, much as
    TensorFlow 1 had edges at powers of 1.1. They do not depend on the values, so that histograms of
    parts of a batch add up to that of the whole batch.

    Attributes:
        counts: One per bin in ascending order, int64; excludes values that are not finite.
        nonfinite: Number of values that are NaN or infinite.
    """

    counts: np.ndarray
    nonfinite: int = 0

    @classmethod
    def from_codes(cls, counts: np.ndarray) -> "Histogram":
        """Make it from the counts of `kdist.layers.measurements`, shape `(4096,)`."""
        whole = np.asarray(counts, "int64")
        positive, negative = whole[:_SIGN], whole[_SIGN:]
        zeros = positive[:_NORMAL].sum() + negative[:_NORMAL].sum()
        bins = [
            negative[_NORMAL:_INFINITE][::-1],
            np.array([zeros]),
            positive[_NORMAL:_INFINITE],
        ]
        nonfinite = positive[_INFINITE:].sum() + negative[_INFINITE:].sum()
        return cls(np.concatenate(bins), int(nonfinite))

    @property
    def size(self) -> int:
        """Number of values, including those that are not finite."""
        return int(self.counts.sum()) + self.nonfinite

    @property
    def zero_fraction(self) -> float:
        """Share of zeros, from 0 to 1; NaN without values.

        Numbers below 2**-126, which TensorFlow's kernels flush to zero, are zeros.
        """
        return int(self.counts[len(self.counts) // 2]) / self.size if self.size else float("nan")

    def condensed(self, bins: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """Return counts and edges of at most `bins` bins from the smallest value to the largest.

        The edges are those of the fixed bins that are closest to evenly spaced ones, so the counts
        are exact; without finite values both arrays are empty.

        Args:
            bins: The largest number of bins.
        """
        filled = np.flatnonzero(self.counts)
        if not len(filled):
            return np.zeros(0, "int64"), np.zeros(0)
        first, last = filled[0], filled[-1] + 1
        even = np.linspace(EDGES[first], EDGES[last], bins + 1)
        after = np.clip(np.searchsorted(EDGES, even), first + 1, last)
        nearer = even - EDGES[after - 1] < EDGES[after] - even
        chosen = np.unique(np.where(nearer, after - 1, after))
        return np.add.reduceat(self.counts, chosen[:-1])[: len(chosen) - 1], EDGES[chosen]
