"""What differs, from which step on: by closed forms, without TensorFlow."""

import dataclasses
import math

import numpy as np
import pytest
from kdist.check.comparison import Compared, compare, gap, tolerance
from kdist.check.finding import Finding
from kdist.check.options import CheckOptions
from kdist.check.precision import Precision
from kdist.check.record import Item, Record, kept
from kdist.check.record_file import read_record, write_record
from kdist.check.result import CheckResult
from kdist.errors import UserError

WIDE = Precision(level="float64", asked="float64")


def record(name="one", replicas=1, shift=0.0, from_step=99):
    """Three steps of two weights; the second is shifted from a step on."""
    made = Record(name=name, replicas=replicas, layers={"a/kernel": "a", "b/kernel": "b"})
    for step in range(1, 4):
        off = shift if step >= from_step else 0.0
        made.add(step, "loss", {"loss": 1 / step + off})
        made.add(step, "weights", {"a/kernel": np.ones(3), "b/kernel": np.full(2, step + off)})
    return made


def test_equal_records_have_no_differences():
    assert compare(record(), record("two", 2), WIDE) == []
    assert compare(record(), record("two", 2, shift=1e-10, from_step=1), WIDE) == []


def test_the_first_difference_has_its_step_layer_and_size():
    loss, weight = compare(record(), record("two", 2, shift=0.25, from_step=2), WIDE)
    assert (loss.kind, loss.step, loss.gap) == ("loss", 2, 0.25)
    assert (weight.kind, weight.step, weight.layer) == ("weights", 2, "b")
    assert weight.gap == weight.largest == 0.25
    assert weight.name == "b/kernel"
    assert weight.tolerance == 2e-9  # relative to 2, the value at this step


def test_what_rounding_grows_to_is_no_difference():
    two = record("two", 2, shift=1e-3, from_step=1)
    rounded = record("rounded", shift=1e-4, from_step=1)
    assert compare(record(), two, WIDE)
    assert compare(record(), two, WIDE, rounded) == []  # 20 times 1e-4 is more
    assert compare(record(), two, WIDE, record("rounded", shift=1e-5, from_step=1))


NARROW = Precision(level="float32", asked="float32", reason="it is so")


def trained(movement, *, scale=1.0, noise=0.0, name="one"):
    """Three steps of a weight of this size; each moves it, all but for some noise."""
    made = Record(name=name)
    made.add(0, "initial weights", {"kernel": np.full(3, scale)})
    for step in range(1, 4):
        made.add(step, "weights", {"kernel": np.full(3, scale + step * movement + noise)})
    return made


@pytest.mark.parametrize(("movement", "scale"), [(1e-5, 0.1), (1e-5, 1), (1e-2, 100), (1, 0.1)])
def test_float32_weights_are_compared_with_how_far_they_moved(movement, scale):
    epsilon = 2.0**-23
    one = trained(movement, scale=scale)
    # What rounding does to the sum of a weight and its update, in each step.
    assert not compare(one, trained(movement, scale=scale, noise=scale * epsilon), NARROW)
    wrong = trained(1.5 * movement, scale=scale)
    (difference,) = compare(one, wrong, NARROW)
    assert difference.kind == "weights"
    assert not compare(one, wrong, NARROW, trained(1.1 * movement, scale=scale))  # by rounding
    # Initial weights that differ by rounding are no growth of it.
    near = trained(movement, scale=scale * (1 + 2 * epsilon))
    assert compare(one, wrong, NARROW, near)


def test_weights_that_the_first_step_makes_have_the_start_of_another_training():
    one, wrong = trained(1e-5), trained(1.5e-5)
    one.names["initial weights"] = []
    del one.values[Item(0, "initial weights", 0)]
    assert [d.kind for d in compare(one, wrong, NARROW)] == ["weights"]
    assert compare(one, trained(1e-5), NARROW) == []


def test_steps_after_an_error_are_not_compared():
    failed = Record(name="two", replicas=2, error="it failed")
    failed.add(1, "loss", {"loss": 1.0})
    failed.add(1, "weights", {"a/kernel": np.ones(3), "b/kernel": np.ones(2)})
    assert compare(record(), failed, WIDE) == []


def test_what_is_missing_is_a_difference():
    shorter = record("two", 2)
    del shorter.values[Item(3, "weights", 1)]
    (difference,) = compare(record(), shorter, WIDE)
    assert (difference.step, difference.name, difference.gap) == (3, "b/kernel", math.inf)


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
        (None, [1.0], math.inf),
    ],
)
def test_the_gap_of_two_arrays(one, other, expected):
    arrays = [None if value is None else np.array(value) for value in (one, other)]
    assert gap(*arrays) == expected


def test_the_tolerance_is_absolute_up_to_1_and_relative_above():
    assert tolerance(np.array([0.1]), "weights", WIDE) == 1e-9
    assert tolerance(np.array([-100.0, np.inf]), "weights", WIDE) == pytest.approx(1e-7)
    assert tolerance(np.array([2.0]), "metric", WIDE) == 2e-6


def test_large_arrays_are_sampled_and_a_change_of_any_value_shows():
    large = np.zeros((600, 600))
    sample = kept(large)
    assert sample.size < 2**17
    large[599, 598] = 1.0
    assert gap(sample, kept(large)) > 0


def test_a_record_is_the_same_when_it_is_read(tmp_path):
    made = record("two", 2)
    made.warnings.append("careful")
    write_record(tmp_path / "record.npz", made)
    found = read_record(tmp_path / "record.npz")
    assert compare(made, found, WIDE) == []
    assert (found.name, found.names, found.layers) == (made.name, made.names, made.layers)
    assert (found.warnings, found.last_step) == (["careful"], 3)


def result(*trainings, causes=()):
    return CheckResult(
        trainings=trainings,
        stock=Compared(name="stock", error="it crashes"),
        causes=causes,
        precision="float64",
        batches="1 epoch",
        compared="2 replicas",
    )


def test_the_text_says_where_it_begins_where_the_cause_is_not_known():
    differences = compare(record(), record("2 replicas", 2, shift=0.25, from_step=2), WIDE)
    found = result(Compared(name="2 replicas", differences=differences))
    assert not found.equal
    assert "not known. It begins at step 2 with loss" in str(found)
    assert "stock: cannot train it (it crashes)" in str(found)
    with pytest.raises(AssertionError, match="NOT EQUAL"):
        found.assert_equal()


NOTE = Finding(name="n", text="t", shown_by="s", fix="f", line="my.py:3: x", level="note")
FAULT = dataclasses.replace(NOTE, level="fault")


def test_a_note_leaves_a_model_equal_and_a_fault_does_not():
    differences = compare(record(), record("2 replicas", 2, shift=1e-6, from_step=2), WIDE)
    training = Compared(name="2 replicas", differences=differences, is_noted=True)
    assert result(training, causes=[NOTE]).equal
    assert result(training, causes=[NOTE]).to_dict()["unexplained"] == []
    assert not result(training, causes=[NOTE, FAULT]).equal
    assert not result(Compared(name="good"), causes=[FAULT]).equal
    assert "in my.py:3: x" in str(result(training, causes=[NOTE]))
    assert not result(Compared(name="failed", error="e"), causes=[NOTE]).equal


def test_a_note_about_one_training_excuses_no_other():
    slight = compare(record(), record("2 replicas", 2, shift=1e-6, from_step=2), WIDE)
    large = compare(record(), record("2 workers", 2, shift=1.0, from_step=1), WIDE)
    found = result(
        Compared(name="2 replicas", differences=slight, is_noted=True),
        Compared(name="2 workers", differences=large),
        causes=[NOTE],
    )
    assert not found.equal
    assert "not known. It begins at step 1 with loss" in str(found)
    assert found.to_dict()["unexplained"] == ["2 workers"]


@pytest.mark.parametrize(
    ("names", "is_known"),
    [
        (["python_draws"], True),
        (["optimizer_state"], False),
        (["data_without_seed"], False),
        (["optimizer_state", "python_draws"], True),
    ],
    ids=str,
)
def test_a_cause_that_cannot_change_the_loss_leaves_it_unexplained(names, is_known):
    differences = compare(record(), record("2 replicas", 2, shift=1.0, from_step=1), WIDE)
    causes = [dataclasses.replace(FAULT, name=name) for name in names]
    found = result(Compared(name="2 replicas", differences=differences), causes=causes)
    assert ("not known. It begins at step 1 with loss" in str(found)) != is_known
    assert found.to_dict()["unexplained"] == ([] if is_known else ["2 replicas"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": (1,)},
        {"replicas": ()},
        {"replicas": "2,3"},
        {"replicas": (2.5,)},
        {"steps": 1},
        {"steps": True},
        {"batch_size": 1},
        {"seed": -1},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=f"{next(iter(wrong))}|numbers of replicas"):
        CheckOptions(**wrong)


def test_a_long_error_of_stock_keras_is_cut():
    stock = Compared(name="stock", error="TypeError: no such type in the list " + "int8, " * 99)
    text = str(dataclasses.replace(result(Compared(name="2 replicas")), stock=stock))
    assert "cannot train it (TypeError: no such type in the list int8, int8," in text
    assert len(text.splitlines()) < 7
    assert text.endswith("…)")


@pytest.mark.parametrize(("steps", "epochs", "each"), [(2, 1, 2), (3, 1, 3), (4, 2, 2), (7, 2, 4)])
def test_steps_are_divided_into_epochs(steps, epochs, each):
    options = CheckOptions(steps=steps)
    assert (options.epochs, options.steps_per_epoch) == (epochs, each)
