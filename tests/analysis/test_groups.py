import pytest
from kdist.analysis.groups import format_spread, spread


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
