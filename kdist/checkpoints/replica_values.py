"""Values of variables that may have a copy on every replica: copied, and put back on any number."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .variables import Variables


def copy_values(
    variables: Variables, *, into: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Copy the values of variables into arrays that nothing else holds, by name.

    Args:
        variables: By name.
        into: Arrays of an earlier copy that nobody needs, to be filled again: a copy into memory
            that is new to the process takes twice as long.
    """
    return {
        name: _copy(np.asarray(_parts(variable)[0].read_value()), (into or {}).get(name))
        for name, variable in variables.items()
    }


def assign_values(
    variables: Variables, arrays: Mapping[str, np.ndarray], stacked: Iterable[str] = ()
) -> None:
    """Give variables the values that `copy_values` has copied, on any number of replicas.

    Args:
        variables: By name.
        arrays: By the same names.
        stacked: Names of those with a value for each replica, as an earlier version saved what
            replicas counted.
    """
    per_replica = {*stacked}
    for name, variable in variables.items():
        value = arrays[name]
        if name in per_replica:
            value = _merged(variable, value)
        for part in _parts(variable):
            part.assign(value)


def _merged(variable: keras.Variable, values: np.ndarray) -> np.ndarray:
    if variable.aggregation == "sum":
        return np.asarray(np.sum(values, axis=0, dtype=values.dtype))
    if variable.aggregation == "mean":
        return np.asarray(np.mean(values, axis=0), values.dtype)
    return np.asarray(values[0])


def _parts(variable: keras.Variable) -> tuple[Any, ...]:
    """The TensorFlow variables that have the value."""
    value = variable.value
    is_counted_alone = value.synchronization == tf.VariableSynchronization.ON_READ
    if isinstance(value, tf.distribute.DistributedValues) and not is_counted_alone:
        return tuple(value.values)
    return (value,)


def _copy(value: np.ndarray, into: np.ndarray | None) -> np.ndarray:
    """An array that nothing else holds."""
    if into is None or (into.shape, into.dtype) != (value.shape, value.dtype):
        return np.array(value)
    np.copyto(into, value)
    return into
