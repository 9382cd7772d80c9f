"""Values of variables that may have a copy on every replica: copied, and put back on any number."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .variables import Variables
from .workers import Workers


def copy_values(
    variables: Variables,
    workers: Workers | None = None,
    *,
    into: Mapping[str, np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Copy the values of variables.

    Replicas hold the same weights, of which one copy is taken, by the chief alone.

    Args:
        variables: By name.
        workers: With whose replicas this is done together; `None` for those of this process.
        into: Arrays of an earlier copy that nobody needs, to be filled again: a copy into memory
            that is new to the process takes twice as long.

    Returns:
        Arrays by name, that nothing else holds; and the names of those with a value for each
        replica, along the first axis, in the order of the replicas' parts of a batch.
    """
    arrays, stacked = {}, []
    each = _values_of_each_replica(variables, workers)
    for name, variable in variables.items():
        values = each.get(name)
        if values is not None and (_counts_alone(variable) or not _are_equal(values)):
            arrays[name] = np.stack(values)
            stacked.append(name)
        elif workers is None or workers.is_chief:
            arrays[name] = _copy(_value(_parts(variable)[0]), (into or {}).get(name))
    return arrays, stacked


def assign_values(
    variables: Variables,
    arrays: Mapping[str, np.ndarray],
    stacked: Iterable[str],
    workers: Workers | None = None,
    *,
    merged: Mapping[int, Callable[..., Any]] | None = None,
) -> None:
    """Give variables the values that `copy_values` has copied, on any number of replicas.

    What each replica counts for itself is summed on the first one where their number is another;
    the others keep what they have, which is nothing at the beginning of an epoch.

    Args:
        variables: By name.
        arrays: By the same names.
        stacked: Names of those with a value for each replica.
        workers: To whose replicas this is done together; `None` for those of this process.
        merged: By `id` of a variable, how its metric merges replicas' values, where that is no sum.
    """
    per_replica = {*stacked}
    for name, variable in variables.items():
        parts = _parts(variable)
        places, count = list(range(len(parts))), len(parts)
        if workers is not None and _has_parts(variable):
            places, count = workers.places(len(parts)), len(parts) * workers.count
        saved = arrays[name] if name in per_replica else arrays[name][np.newaxis]
        values = _spread(variable, saved, count, (merged or {}).get(id(variable)))
        for part, place in zip(parts, places, strict=True):
            if place < len(values):
                part.assign(values[place])


def replica_merges(model: keras.Model) -> dict[int, Callable[..., Any]]:
    """Return, by `id` of a metric's variable, its `merge_replicas` where it has one."""
    merges: dict[int, Callable[..., Any]] = {}
    for metric in _flattened(model.metrics):
        merge = getattr(metric, "merge_replicas", None)
        if merge is not None:
            merges |= {id(one): functools.partial(merge, one) for one in metric.variables}
    return merges


def _spread(
    variable: keras.Variable, saved: np.ndarray, count: int, merge: Callable[..., Any] | None
) -> list[np.ndarray]:
    """Values for the first replicas, or for all."""
    counted_alone = len(saved) > 1 and variable.synchronization == "on_read"
    if len(saved) == count and (_counts_alone(variable) or not counted_alone):
        return list(saved)
    if not counted_alone:
        value = saved[0]
    elif merge is not None:
        value = np.asarray(merge(tf.convert_to_tensor(saved)))
    elif variable.aggregation == "sum":
        value = np.add.reduce(saved, axis=0, dtype=saved.dtype)
    elif variable.aggregation == "mean":
        value = np.mean(saved, axis=0).astype(saved.dtype)
    else:
        value = saved[0]
    adds_up = merge is not None or variable.aggregation == "sum"
    return [value] if _counts_alone(variable) and adds_up else [value] * count


def _values_of_each_replica(
    variables: Variables, workers: Workers | None
) -> dict[str, list[np.ndarray]]:
    """The values of variables whose replicas' values may differ, by name."""
    found = {
        name: [_value(part) for part in _parts(variable)]
        for name, variable in variables.items()
        if _has_parts(variable) and (_counts_alone(variable) or _may_differ(name, variable))
    }
    if workers is not None:
        found = dict(zip(found, workers.gather(list(found.values())), strict=True))
    return {name: values for name, values in found.items() if len(values) > 1}


def _has_parts(variable: keras.Variable) -> bool:
    return isinstance(variable.value, tf.distribute.DistributedValues)


def _parts(variable: keras.Variable) -> tuple[Any, ...]:
    """A TensorFlow variable for each of this worker's replicas."""
    return tuple(variable.value.values) if _has_parts(variable) else (variable.value,)


def _value(part: Any) -> np.ndarray:
    """The value of a TensorFlow variable, in TensorFlow's memory where that is the host's."""
    return np.asarray(part.read_value())


def _copy(value: np.ndarray, into: np.ndarray | None) -> np.ndarray:
    """An array that nothing else holds."""
    if into is None or (into.shape, into.dtype) != (value.shape, value.dtype):
        return np.array(value)
    np.copyto(into, value)
    return into


def _counts_alone(variable: keras.Variable) -> bool:
    """Whether each replica counts for itself, as metrics of several workers do."""
    on_read = tf.VariableSynchronization.ON_READ
    return _has_parts(variable) and variable.value.synchronization == on_read


def _may_differ(name: str, variable: keras.Variable) -> bool:
    """Whether a layer may have written another value on each replica, as plain batch norms do."""
    return name.startswith("model/") and not variable.trainable


def _are_equal(values: list[np.ndarray]) -> bool:
    return all(value.tobytes() == values[0].tobytes() for value in values[1:])


def _flattened(metrics: Iterable[Any]) -> Iterator[Any]:
    for metric in metrics:
        yield metric
        yield from _flattened(getattr(metric, "metrics", ()))
