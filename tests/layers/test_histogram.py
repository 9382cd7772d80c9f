import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from kdist.layers.histogram import EDGES, Histogram
from kdist.layers.measurements import value_counts

TINY = 2.0**-126


def counted(values):
    return Histogram.from_codes(value_counts(values).numpy())


def expected(values):
    """NumPy's counts; its bins have their lower end, those of negative numbers here the upper."""
    wide = np.float64(values).ravel()
    wide = wide[np.isfinite(wide)]
    limits = np.sort(np.ldexp(1 + np.arange(8) / 8, np.arange(-126, 128)[:, None]).ravel())
    limits = np.append(limits, np.inf)
    positive, negative = (np.histogram(one, limits)[0] for one in (wide, -wide))
    return np.concatenate([negative[::-1], [np.sum(np.abs(wide) < TINY)], positive])


floats = st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
    lambda dtype: stn.arrays(
        dtype, stn.array_shapes(max_dims=2, max_side=6), elements=stn.from_dtype(np.dtype(dtype))
    )
)


@given(floats)
def test_counts_are_those_of_numpy(values):
    histogram = counted(values)
    np.testing.assert_array_equal(histogram.counts, expected(values))
    assert histogram.nonfinite == np.sum(~np.isfinite(values))
    assert histogram.size == values.size
    zeros = np.mean(np.abs(np.float64(values)) < TINY)
    assert histogram.zero_fraction == pytest.approx(zeros, abs=1e-12)


@given(floats, st.integers(1, 70))
def test_condensed_bins_hold_every_value_exactly(values, bins):
    histogram = counted(values)
    counts, edges = histogram.condensed(bins)
    assert len(counts) <= bins
    assert counts.sum() == histogram.counts.sum()
    if len(counts):
        assert len(edges) == len(counts) + 1
        assert np.all(np.diff(edges) > 0)
        assert set(edges) <= set(EDGES)
        fine = np.add.reduceat(np.append(histogram.counts, 0), np.searchsorted(EDGES, edges))
        np.testing.assert_array_equal(counts, fine[:-1])


def test_condensed_bins_are_about_evenly_spaced():
    values = np.random.default_rng(0).normal(size=100_000).astype("float32")
    counts, edges = counted(values).condensed(40)
    assert 30 <= len(counts) <= 40
    density = counts / np.diff(edges) / len(values)
    middle = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(density, np.exp(-(middle**2) / 2) / 2.5066, atol=0.02)


def test_histograms_of_parts_add_up():
    values = np.random.default_rng(0).normal(size=(30, 7)).astype("float32")
    parts = [counted(part).counts for part in np.split(values, [11, 12])]
    np.testing.assert_array_equal(sum(parts), counted(values).counts)


def test_without_values_there_are_no_bins():
    empty = counted(np.zeros(0, "float32"))
    assert [len(part) for part in empty.condensed()] == [0, 0]
    assert np.isnan(empty.zero_fraction)
    assert [len(part) for part in counted(np.float32([np.nan])).condensed()] == [0, 0]
