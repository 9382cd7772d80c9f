import math

import numpy as np
import pytest
from kdist.errors import UserError
from kdist.report.charts import draw_learning_rates
from kdist.tools.find.rate_curve import (
    RateCurve,
    average_losses,
    check_range,
    has_diverged,
    space_rates,
)


def curve(loss, *, steps=201):
    """A curve from 1e-5 to 10 of a loss of the rate's logarithm, smooth already."""
    rates = space_rates(1e-5, 10.0, steps)
    losses = [loss(math.log10(rate)) for rate in rates]
    return RateCurve(rates=rates, losses=losses, smoothed=losses)


def valley(x):
    """Lowest at 1e-1."""
    return 2 - math.tanh(2 * (x + 2)) + (math.exp(3 * (x + 1)) - 1) * 0.0471 * (x > -4)


def test_rates_are_a_geometric_series():
    np.testing.assert_allclose(
        space_rates(1e-6, 10.0, 50), np.geomspace(1e-6, 10.0, 50), rtol=1e-12
    )


def test_the_lowest_rate():
    found = curve(valley)
    xs = np.log10(found.rates)
    losses = np.array([valley(x) for x in xs])
    assert found.at_minimum == found.rates[int(losses.argmin())]
    assert found.suggestion == found.at_minimum / 10
    assert not found.doubt


@pytest.mark.parametrize(
    ("loss", "diverged", "why"),
    [
        (lambda x: 2.0, False, "did not fall"),  # learns nothing
        (lambda x: math.exp(x + 5), True, "did not fall"),  # only explodes
        (lambda x: 2 - math.tanh(x + 2), False, "stayed low at 10, the largest rate"),
    ],
)
def test_unsure(loss, diverged, why):
    found = curve(loss)
    assert found.diverged == diverged
    assert why in found.doubt
    assert str(found).endswith(f"unsure: {found.doubt}")


def test_it_rose_again_without_exploding():
    found = curve(lambda x: 5 + min((x + 2) ** 2, 6.0))
    assert not found.diverged
    assert not found.doubt


def test_a_loss_that_is_no_number_is_not_looked_at():
    found = curve(lambda x: math.nan if x > 0 else 1 - x)
    assert found.at_minimum == pytest.approx(1.0, rel=0.1)
    short = RateCurve(rates=[1.0], losses=[math.nan], smoothed=[math.nan])
    assert short.at_minimum == 1.0
    assert short.doubt


def test_a_loss_of_nearly_nothing_does_not_explode_by_rising_a_little():
    losses = average_losses([2.0, 1e-9, 0.0, 1e-8, 0.019, 0.021], decay=0.0)
    assert [has_diverged(losses[:count]) for count in range(1, 7)] == [False] * 5 + [True]


def test_the_average_is_that_of_exponential_weights():
    losses = np.random.default_rng(0).uniform(1, 2, 50)
    averages = average_losses(losses, decay=0.9)
    for count, average in enumerate(averages, 1):
        weights = 0.9 ** np.arange(count)[::-1]
        assert average == pytest.approx(np.average(losses[:count], weights=weights))
        assert not has_diverged(averages[:count])


@pytest.mark.parametrize("smallest", [1.0, -5.0])
def test_explodes_at_so_many_times_the_minimum(smallest):
    limit = smallest + 3 * abs(smallest)
    losses = average_losses([smallest, limit - 0.01, limit + 0.01, math.nan], decay=0.0)
    assert losses[0] == smallest
    assert [has_diverged(losses[:count]) for count in range(1, 5)] == [False, False, True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 0.0},
        {"least": math.nan},
        {"most": 1e-9},
        {"most": math.inf},
        {"steps": 9},
        {"steps": 20.5},
    ],
)
def test_ranges_that_are_refused(wrong):
    with pytest.raises(UserError):
        check_range(**{"least": 1e-6, "most": 10.0, "steps": 100} | wrong)


def test_the_picture():
    found = curve(valley)
    figure = draw_learning_rates(
        found.rates,
        [*found.losses[:-1], math.nan],
        found.smoothed,
        suggestion=found.suggestion,
    )
    batches, average, suggested = figure.charts[0].series
    assert len(batches.visible_points) == len(average.visible_points) - 1 == len(found.rates) - 1
    assert suggested.name == f"suggested: {found.suggestion:.2g}"
    assert {point.x for point in suggested.points} == {found.suggestion}
    assert "<circle" in figure.charts[0].svg()
