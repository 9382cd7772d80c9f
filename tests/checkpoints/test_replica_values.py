"""Copies of variables, which a thread writes while training continues."""

import keras
import numpy as np
import pytest
from kdist.checkpoints.replica_values import assign_values, copy_values
from kdist.checkpoints.variables import state_variables
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


@pytest.mark.parametrize(("aggregation", "expected"), [("sum", 6.0), ("mean", 3.0), ("none", 2.0)])
def test_values_of_each_replica_that_an_earlier_version_saved(aggregation, expected):
    variable = keras.Variable(0.0, aggregation=aggregation)
    assign_values({"one": variable}, {"one": np.array([2.0, 4.0], "f4")}, ["one"])
    assert float(variable) == expected
