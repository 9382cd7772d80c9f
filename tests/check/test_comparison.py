"""Where two runs differ first, and what is only rounding: by closed forms."""

import math

import numpy as np
import pytest
from kdist.errors import UserError
from kdist.tools.check.check_options import CheckOptions
from kdist.tools.check.comparison import CheckResult, Precision, Record, compare, largest_gap

FLOAT64, FLOAT32 = Precision(), Precision("float32", "it is so")


def record(shift=0.0, from_step=99, **options):
    """Three steps of two weights; the second is shifted from a step on, and so is the loss."""
    made = Record(name="one", **options)
    for step in range(1, 4):
        off = shift if step >= from_step else 0.0
        made.add(step, "loss", {"loss": 1 / step + off})
        made.add(step, "weights", {"a/kernel": np.ones(3), "b/kernel": np.full(2, step + off)})
    return made


def test_equal_runs_have_no_differences():
    assert compare(record(), record(), FLOAT64) == []
    assert compare(record(), record(shift=1e-10, from_step=1), FLOAT64) == []


def test_the_first_difference_has_its_step_and_size():
    loss, weight = compare(record(), record(shift=0.25, from_step=2), FLOAT64)
    assert (loss.kind, loss.step, loss.gap) == ("loss", 2, 0.25)
    assert (weight.kind, weight.name, weight.step) == ("weights", "b/kernel", 2)
    assert weight.gap == weight.largest == 0.25
    assert weight.tolerance == 2e-9  # relative to 2, the value at this step


def test_what_rounding_grows_to_is_no_difference():
    wrong = record(shift=1e-3, from_step=1)
    assert compare(record(), wrong, FLOAT64, record(shift=1e-4, from_step=1)) == []  # 20 times
    assert compare(record(), wrong, FLOAT64, record(shift=1e-5, from_step=1))


def trained(movement, *, scale=1.0, noise=0.0):
    """Three steps of a weight of this size; each moves it, all but for some noise."""
    made = Record(name="one")
    made.add(0, "initial weights", {"state": np.zeros(1), "kernel": np.full(3, scale)})
    for step in range(1, 4):
        made.add(step, "weights", {"kernel": np.full(3, scale + step * movement + noise)})
    return made


@pytest.mark.parametrize(("movement", "scale"), [(1e-5, 0.1), (1e-5, 1), (1e-2, 100), (1, 0.1)])
def test_float32_weights_are_compared_with_how_far_they_moved(movement, scale):
    epsilon = 2.0**-23
    one = trained(movement, scale=scale)
    # What rounding does to the sum of a weight and its update, in each step.
    assert not compare(one, trained(movement, scale=scale, noise=scale * epsilon), FLOAT32)
    wrong = trained(1.5 * movement, scale=scale)
    (difference,) = compare(one, wrong, FLOAT32)
    assert difference.kind == "weights"
    assert not compare(one, wrong, FLOAT32, trained(1.1 * movement, scale=scale))  # by rounding
    # Initial weights that differ by rounding are no growth of it.
    assert compare(one, wrong, FLOAT32, trained(movement, scale=scale * (1 + 2 * epsilon)))


def test_steps_after_an_error_are_not_compared():
    failed = Record(name="two", error="it failed")
    failed.add(1, "loss", {"loss": 1.0})
    assert compare(record(), failed, FLOAT64) == []
    assert [one.step for one in compare(record(), Record(name="two"), FLOAT64)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0, np.nan], [1.5, np.nan], 0.5),
        ([1.0, np.nan], [1.0, 2.0], math.inf),
        ([1.0, 2.0], [1.0], math.inf),
        ([], [], 0.0),
        (["a"], ["a"], 0.0),
        (["a"], ["b"], math.inf),
    ],
)
def test_the_gap_of_two_arrays(one, other, expected):
    assert largest_gap(np.array(one), np.array(other)) == expected
    assert largest_gap(np.array(one), None) == math.inf


def test_large_arrays_are_sampled_and_a_change_of_any_value_shows():
    one, other = Record(name="one"), Record(name="two")
    large = np.zeros((600, 600))
    one.add(1, "weights", {"kernel": large})
    large[599, 598] = 1.0
    other.add(1, "weights", {"kernel": large})
    assert one.values[1, "weights", 0].size < 2**17
    assert compare(one, other, FLOAT64)


def result(**options):
    given = {"differences": {"2 replicas": []}, "errors": {}, "unrepeatable": []}
    return CheckResult(**{**given, "precision": str(FLOAT64), "steps": "1 epoch", **options})


def test_a_result_says_where_it_begins():
    found = compare(record(), record(shift=math.nan, from_step=2), FLOAT64)
    for one, says in (
        (result(), "2 replicas: equal"),
        (result(differences={"2 replicas": found}), "differs from step 2 on\n    loss: NaN"),
        (result(errors={"2 replicas": "too bad"}), "2 replicas: fails: too bad"),
        (
            result(unrepeatable=found),
            "two runs on one replica differ from step 2 on\n",
        ),
    ):
        assert says in str(one)
        assert one.equal == (says == "2 replicas: equal")
    with pytest.raises(AssertionError, match="runs differ from the run on one replica\nNOT EQUAL"):
        result(errors={"2 replicas": "too bad"}).assert_equal()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": (1,)}, "from 2 to 64, received 1"),
        ({"replicas": ()}, "such as 2,3"),
        ({"replicas": "2;3"}, "integers separated by commas, such as 2,3"),
        ({"steps": 1}, "steps has to be"),
        ({"batch_size": 1}, "batch_size has to be"),
        ({"seed": -1}, "seed has to be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        CheckOptions(**options)


@pytest.mark.parametrize(
    ("replicas", "expected"), [((2,), 8), ((2, 3), 12), ((3, 4, 5), 60), ((7, 8, 9), 9)]
)
def test_batches_that_all_numbers_of_replicas_divide(replicas, expected):
    assert CheckOptions(replicas=replicas).full_batch == expected
