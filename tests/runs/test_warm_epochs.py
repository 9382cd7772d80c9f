import pytest
from kdist.runs.record import median_rate, warm_rates


@pytest.mark.parametrize(
    ("rates", "warm", "median"),
    [
        ([10.0, 90.0, 110.0], [90.0, 110.0], 100.0),
        ([10.0, 90.0], [90.0], 90.0),
        ([10.0], [10.0], 10.0),
        ([None, 90.0], [90.0], 90.0),
        ([10.0, None], [10.0], 10.0),
        ([], [], None),
    ],
)
def test_the_first_epoch_counts_only_where_it_is_alone(rates, warm, median):
    assert warm_rates(rates) == warm
    assert median_rate(rates) == median
