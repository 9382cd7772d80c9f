"""Copies of variables, and of other values as JSON, which a thread writes meanwhile."""

import json

import numpy as np
import pytest
import tensorflow as tf
from kdist.checkpoint.variable_values import (
    assign_values,
    copy_values,
    from_json,
    state_variables,
    to_json,
)
from resumed_training import compiled


@pytest.mark.parametrize("replicas", [1, 2])
def test_copies_stay_when_the_variables_change(replicas):
    model = compiled(replicas)
    variables = state_variables(model)
    expected = {name: np.array(variable.numpy()) for name, variable in variables.items()}
    copied = copy_values(variables)
    assign_values(variables, {n: a + np.ones_like(a) for n, a in copied.items()})
    for name, variable in variables.items():
        assert isinstance(copied[name], np.ndarray)
        assert copied[name].flags.owndata
        assert copied[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(copied[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(variable.numpy(), expected[name] + 1, err_msg=name)


def test_arrays_of_an_earlier_copy_are_filled_again():
    model = compiled()
    variables = state_variables(model)
    earlier = copy_values(variables)
    assign_values(variables, {n: a + np.ones_like(a) for n, a in earlier.items()})
    other = {name: array for name, array in earlier.items() if array.shape}
    name = next(iter(other))
    later = copy_values(variables, into={**other, name: np.zeros(3)})
    for one, variable in variables.items():
        np.testing.assert_array_equal(later[one], variable.numpy(), err_msg=one)
        assert (later[one] is other.get(one)) == (one in other and one != name)


@pytest.mark.parametrize(
    "state",
    [
        None,
        [1, 2.5, True, "é", None],
        {"a": (1, [2, ()]), "b": {}},
        {3: "x", (1, 2): 0.1, "$array": "name"},
        {"$tuple": 1},
        [0.1 + 0.2, 5e-324, 1.7976931348623157e308],
        b"\x00\xff",
    ],
    ids=str,
)
def test_values_read_back_with_their_types(state):
    arrays = {}
    read = from_json(json.loads(json.dumps(to_json(state, name="x", arrays=arrays))), arrays)
    assert repr(read) == repr(state)
    assert not arrays


def test_numbers_that_are_none_read_back():
    read = json.loads(json.dumps([float("nan"), float("inf"), -float("inf")]))
    assert repr(read) == "[nan, inf, -inf]"


def test_arrays_stand_beside():
    arrays = {}
    weights = [np.ones((2, 3), "float16"), tf.constant([1, 2])]
    saved = to_json({"best": weights, "n": np.float32(0.1)}, name="Stop", arrays=arrays)
    assert list(arrays) == ["Stop/best/0", "Stop/best/1"]
    read = from_json(json.loads(json.dumps(saved)), arrays)
    assert [a.dtype for a in read["best"]] == ["float16", "int32"]
    assert read["best"][1].tolist() == [1, 2]
    assert type(read["n"]) is np.float32
    assert read["n"] == np.float32(0.1)
    read["best"][1][:] = 0  # of its own
    assert arrays["Stop/best/1"].tolist() == [1, 2]


def test_an_array_may_change_while_it_is_written():
    arrays, own = {}, np.ones(3)
    to_json({"sum": own}, name="Mine", arrays=arrays)
    own += 1
    assert arrays["Mine/sum"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("state", [{"a": [object()]}, {"a": [{1}]}, {"a": [np.array(["x"])]}])
def test_what_cannot_be_saved_is_named(state):
    with pytest.raises(TypeError, match="Mine/a/0 is of the type (object|set|ndarray), which"):
        to_json(state, name="Mine", arrays={})
