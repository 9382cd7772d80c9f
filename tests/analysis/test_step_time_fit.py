import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kdist.analysis.step_time_fit import StepTimeFit, fit_step_time
from kdist.errors import UserError

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
    assert flat.batch_of_diminishing_returns() == 0
    alike = fit_step_time([8, 16], [8, 17])
    assert alike.images_per_sec == math.inf
    assert alike.batch_of_diminishing_returns() == math.inf
    assert alike.predict(8) == pytest.approx(8, rel=0.1)


@pytest.mark.parametrize(
    ("batches", "speeds", "words"),
    [
        ([8, 16], [100], "2 batch sizes and 1 speeds"),
        ([8, 8], [100, 101], "two different batch sizes"),
        ([8, 0], [100, 101], "batch size of 0"),
        ([8, 16], [100, math.nan], "speed of nan"),
    ],
)
def test_what_gives_no_fit_is_refused(batches, speeds, words):
    with pytest.raises(UserError, match=words):
        fit_step_time(batches, speeds)


@pytest.mark.parametrize("gain", [0, 1, "0.05", math.nan])
def test_a_gain_is_a_share(gain):
    with pytest.raises(UserError, match="gain has to be above 0 and below 1"):
        StepTimeFit(overhead_seconds=1, images_per_sec=1).batch_of_diminishing_returns(gain)
