import dataclasses
import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kdist.charts.statistics import (
    StepTimeFit,
    fit_step_time,
    format_spread,
    spread,
    time_to_target,
)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([3.0, None, 1.0, 2.0], "2.0 (1.0 to 3.0)"),
        ([3.0], "3.0"),  # one value shows no spread
        ([None], ""),
    ],
)
def test_a_spread_in_words(values, text):
    assert format_spread(spread(values), ".1f") == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.017, 0.02, "18.0 (17.0 to 20.0)"),
        (0.017, None, "18.0 (17.0 or more)"),
        (None, 0.02, "18.0 (up to 20.0)"),
        (None, None, "18.0"),
    ],
)
def test_ends_that_are_not_known_are_not_written(low, high, text):
    assert format_spread({"median": 0.018, "low": low, "high": high}, ".1f", 1e3) == text


# Images a second that the course's first lab gives its readers, a GPU, WRN-16-10.
LAB_BATCHES = (8, 16, 32, 64, 128, 256, 512, 700)
LAB_SPEEDS = (328, 551, 808, 1002, 1165, 1273, 1329, 1332)


def test_the_labs_numbers():
    fit = fit_step_time(LAB_BATCHES, LAB_SPEEDS)
    assert f"{1e3 * fit.overhead_seconds:.1f}" == "18.0"
    assert f"{fit.images_per_sec:.0f}" == "1397"
    predicted = [fit.predict(batch) for batch in LAB_BATCHES]
    np.testing.assert_allclose(predicted, LAB_SPEEDS, rtol=0.04)


positive = st.floats(1e-3, 1e3)


@settings(deadline=None, max_examples=50)
@given(positive, st.floats(1, 1e5), st.sets(st.integers(1, 4096), min_size=2))
def test_speeds_without_noise_give_back_what_made_them(overhead, rate, batches):
    assume(max(batches) / min(batches) > 1.01)
    # Both parts have to be seen beside the other.
    assume(1e-4 < overhead * rate / max(batches) < 1e4)
    sizes = sorted(batches)
    fit = fit_step_time(sizes, [b / (overhead + b / rate) for b in sizes])
    assert fit.overhead_seconds == pytest.approx(overhead, rel=1e-5)
    assert fit.images_per_sec == pytest.approx(rate, rel=1e-5)


@settings(deadline=None, max_examples=50)
@given(positive, st.floats(1, 1e5), st.floats(0.01, 0.5))
def test_from_that_batch_on_doubling_gains_less(overhead, rate, gain):
    fit = StepTimeFit(overhead_seconds=overhead, images_per_sec=rate)
    batch = fit.batch_of_diminishing_returns(gain)
    assert fit.predict(2 * batch) / fit.predict(batch) - 1 == pytest.approx(gain)
    assert fit.predict(2.2 * batch) / fit.predict(1.1 * batch) - 1 < gain


def test_noise_gives_neither_part_below_zero():
    flat = fit_step_time([8, 16, 32], [100, 100, 99])  # slower steps than proportional ones
    assert flat.overhead_seconds == 0
    assert flat.images_per_sec == pytest.approx(99.7, rel=0.01)
    assert flat.batch_of_diminishing_returns(0.05) == 0
    alike = fit_step_time([8, 16], [8, 17])
    assert alike.images_per_sec == math.inf
    assert alike.batch_of_diminishing_returns(0.05) == math.inf
    assert alike.predict(8) == pytest.approx(8, rel=0.1)


def test_the_fit_has_the_smallest_error_of_all_with_parts_above_zero():
    """Compared with a fine grid, also of speeds whose fit without bounds has a negative part."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        batches = np.array([8.0, 16.0, 32.0])
        rates = 100 * rng.uniform(0.5, 2.0, 3)
        fit = fit_step_time(list(batches), list(rates))
        parts = [[fit.overhead_seconds], [1 / fit.images_per_sec]]
        grid = np.stack(np.meshgrid(np.linspace(0, 0.3, 61), np.linspace(0, 0.03, 61)))
        overhead, per_image = np.concatenate([parts, grid.reshape(2, -1)], axis=1)[..., None]
        errors = (((overhead + per_image * batches) * rates / batches - 1) ** 2).sum(axis=1)
        assert errors[0] <= errors.min() + 1e-9


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=12))
def test_when_all_or_none_get_there(values):
    found = time_to_target(values, [True] * len(values))
    assert found.median == statistics.median_low(values)
    ends = (min(values), max(values)) if len(values) > 1 else (None, None)
    assert (found.low, found.high) == ends
    found = time_to_target(values, [False] * len(values))
    assert (found.median, found.low, found.high, found.reached) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("durations", "reached", "expected"),
    [
        ([30.0, 50.0, 5.0], [True, True, False], (50, 30, None, 2, 3)),
        ([30.0, 50.0, math.inf], [True, True, False], (50, 30, None, 2, 3)),
        ([5.0, 5.0], [False, True], (5, 5, None, 1, 2)),
        ([5.0, 1.0, 1.0], [True, False, False], (None, None, None, 1, 3)),
        ([], [], (None, None, None, 0, 0)),
    ],
)
def test_a_run_that_never_got_there_is_slower_than_all(durations, reached, expected):
    assert dataclasses.astuple(time_to_target(durations, reached)) == expected
