import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.analysis.time_to_target import time_to_target
from kdist.errors import UserError

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


def test_published_curve():
    curve = time_to_target(*weeks(TREATED))
    share = dict(zip(curve.times, curve.share_not_yet, strict=True))
    assert [round(share[week], 4) for week in (0, 6, 7, 10, 13, 16, 22, 23)] == [
        *(1, 0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482)
    ]


durations = st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=12)


@settings(deadline=None, max_examples=50)
@given(durations)
def test_when_all_get_there_it_is_the_median(values):
    found = time_to_target(values, [True] * len(values))
    assert found.median == statistics.median_low(values)
    assert found.low is None or found.low <= found.median
    assert found.high is None or found.high >= found.median


@settings(deadline=None, max_examples=50)
@given(durations)
def test_when_none_gets_there_nothing_is_known(values):
    found = time_to_target(values, [False] * len(values))
    assert (found.median, found.low, found.high, found.reached) == (None, None, None, 0)
    assert set(found.share_not_yet) == {1.0}


def test_a_run_that_would_never_get_there_counts_to_the_end():
    values, reached = [30.0, 50.0, 60.0, math.inf], [True, True, True, False]
    found = time_to_target(values, reached)
    assert found == time_to_target([30.0, 50.0, 60.0, 60.0], reached)
    assert (found.median, found.reached, found.runs) == (50, 3, 4)
    # Given up early, it would only be left out.
    early = time_to_target([30.0, 50.0, 60.0, 0.0], reached)
    assert early.share_not_yet != found.share_not_yet
    assert time_to_target([math.inf], [False]).median is None
    with pytest.raises(UserError, match="a duration of inf"):
        time_to_target([math.inf], [True])


@settings(deadline=None, max_examples=50)
@given(durations.flatmap(lambda d: st.tuples(st.just(d), st.lists(st.booleans(), min_size=len(d)))))
def test_the_share_falls_and_the_median_is_within_its_interval(runs):
    values, reached = runs[0], runs[1][: len(runs[0])]
    found = time_to_target(values, reached)
    assert list(found.share_not_yet) == sorted(found.share_not_yet, reverse=True)
    if found.median is not None:
        assert (found.low or 0) <= found.median <= (found.high or math.inf)


@pytest.mark.parametrize("number", [1, 3, 7])
def test_runs_of_the_same_duration_tell_no_interval(number):
    found = time_to_target([2.0] * number, [True] * number)
    assert (found.median, found.low, found.high) == (2, None, None)
    assert (found.times, found.share_not_yet) == ((0, 2), (1, 0))


def test_a_run_given_up_when_another_gets_there_was_not_there_by_then():
    found = time_to_target([5.0, 5.0], [False, True])
    assert (found.median, found.share_not_yet) == (5, (1, 0.5))


def test_no_runs():
    found = time_to_target([], [])
    assert (found.median, found.runs, found.times) == (None, 0, (0.0,))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0], [True, False]), "1 durations and 2 values"),
        (([-1.0], [True]), "duration of -1.0"),
        (([math.nan], [True]), "duration of nan"),
        (([1.0], [True], 95), "confidence has to be above 0 and below 1, received 95"),
    ],
)
def test_what_gives_no_estimate_is_refused(arguments, words):
    with pytest.raises(UserError, match=words):
        time_to_target(*arguments)
