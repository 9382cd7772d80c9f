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
    importance,
    spread,
    time_to_target,
)
from scipy import stats


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


# Weeks of remission, Freireich et al. 1963, as in every book on survival; "+" is censored. The
# medians and intervals are those that SAS PROC LIFETEST prints for them, also on the log-log scale.
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
PLACEBO = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"


def weeks(text):
    words = text.split()
    return [float(word.rstrip("+")) for word in words], [not w.endswith("+") for w in words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(TREATED, (23, 13, None, 9, 21)), (PLACEBO, (8, 4, 11, 21, 21))],
)
def test_published_data(text, expected):
    found = time_to_target(*weeks(text))
    assert (found.median, found.low, found.high, found.reached, found.runs) == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=12))
def test_when_all_or_none_get_there(values):
    found = time_to_target(values, [True] * len(values))
    assert found.median == statistics.median_low(values)
    assert (found.low or 0) <= found.median <= (found.high or math.inf)
    found = time_to_target(values, [False] * len(values))
    assert (found.median, found.low, found.high, found.reached) == (None, None, None, 0)


def test_a_run_that_would_never_get_there_counts_to_the_end():
    values, reached = [30.0, 50.0, 60.0, math.inf], [True, True, True, False]
    found = time_to_target(values, reached)
    assert found == time_to_target([30.0, 50.0, 60.0, 60.0], reached)
    assert (found.median, found.reached, found.runs) == (50, 3, 4)
    # Given up early, it would only be left out.
    assert time_to_target([30.0, 50.0, 0.0], [True, True, False]).median == 30
    assert time_to_target([30.0, 50.0, math.inf], [True, True, False]).median == 50
    assert time_to_target([math.inf], [False]).median is None


def test_a_run_given_up_when_another_gets_there_was_not_there_by_then():
    assert time_to_target([5.0, 5.0], [False, True]).median == 5


def test_no_runs():
    found = time_to_target([], [])
    assert (found.median, found.runs) == (None, 0)


NUMBERS = st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=12)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_of_numbers_the_importance_is_spearmans(data):
    scores = data.draw(NUMBERS)
    values = data.draw(st.lists(st.integers(0, 4), min_size=len(scores), max_size=len(scores)))
    found = importance([{"x": value} for value in values], scores)["x"]
    if len(set(values)) < 2 or len(set(scores)) < 2:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(values, scores).statistic)


def test_of_names_it_is_the_share_of_the_ranks_variance():
    names, scores = ["a", "b", "a", "b", "b"], [1.0, 3.0, 2.0, 2.5, 0.5]
    expected = abs(stats.spearmanr([name == "a" for name in names], scores).statistic)
    assert importance([{"x": name} for name in names], scores)["x"] == pytest.approx(expected)
    names, scores = list("aabbcc"), [1.0, 2.0, 9.0, 8.0, 4.0, 3.0]
    groups = [[s for n, s in zip(names, scores, strict=True) if n == name] for name in "abc"]
    share = stats.kruskal(*groups).statistic / (len(scores) - 1)
    found = importance([{"x": n, "tuner/epochs": 1} for n in names], scores)
    assert found == {"x": pytest.approx(share**0.5)}


def test_few_trials_say_nothing_and_the_weightiest_comes_first():
    assert importance([{"x": 1}, {"x": 2}, {"x": 3}], [1.0, 2.0, 3.0]) == {"x": None}
    rows = [{"weak": w, "strong": s} for w, s in zip([2, 1, 4, 3], [4, 3, 2, 1], strict=True)]
    found = importance(rows, [1.0, 2.0, 3.0, 4.0])
    assert list(found) == ["strong", "weak"]
    assert found["strong"] == pytest.approx(-1)
