"""Values of variables that may have a copy on every replica: copied, and put back on any number."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .variables import Variables


def copy_values(variables: Variables) -> tuple[dict[str, np.ndarray], list[str]]:
    """Copy the values of variables.

    Replicas hold the same weights, of which one copy is taken.

    Args:
        variables: By name.

    Returns:
        Arrays by name, that nothing else holds; and the names of those with a value for each
        replica, along the first axis.
    """
    arrays, stacked = {}, []
    for name, variable in variables.items():
        parts = _parts(variable)
        counts_alone = _counts_alone(variable)
        if len(parts) == 1 or not (counts_alone or _may_differ(name, variable)):
            arrays[name] = np.array(parts[0].numpy())
            continue
        values = [part.numpy() for part in parts]
        if counts_alone or not _are_equal(values):
            arrays[name] = np.stack(values)
            stacked.append(name)
        else:
            arrays[name] = np.array(values[0])
    return arrays, stacked


def assign_values(
    variables: Variables,
    arrays: Mapping[str, np.ndarray],
    stacked: Iterable[str],
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
        merged: By `id` of a variable, how its metric merges replicas' values, where that is no sum.
    """
    per_replica = {*stacked}
    for name, variable in variables.items():
        parts = _parts(variable)
        saved = arrays[name] if name in per_replica else arrays[name][np.newaxis]
        merge = (merged or {}).get(id(variable))
        for part, value in zip(parts, _spread(variable, saved, len(parts), merge), strict=False):
            part.assign(value)


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
    if len(saved) == count and (count == 1 or len(saved) > 1):
        return list(saved)
    if not _counts_alone(variable):
        return [saved[0]] * count
    if merge is not None:
        return [np.asarray(merge(tf.convert_to_tensor(saved)))]
    if variable.aggregation == "sum":
        return [np.add.reduce(saved, axis=0, dtype=saved.dtype)]
    if variable.aggregation == "mean":
        return [np.mean(saved, axis=0).astype(saved.dtype)] * count
    return [saved[0]] * count


def _parts(variable: keras.Variable) -> tuple[Any, ...]:
    """A TensorFlow variable for each replica."""
    value = variable.value
    return tuple(value.values) if isinstance(value, tf.distribute.DistributedValues) else (value,)


def _counts_alone(variable: keras.Variable) -> bool:
    """Whether each replica counts for itself, as metrics do."""
    return bool(variable.synchronization == "on_read")


def _may_differ(name: str, variable: keras.Variable) -> bool:
    """Whether a layer may have written another value on each replica, as plain batch norms do."""
    return name.startswith("model/") and not variable.trainable


def _are_equal(values: list[np.ndarray]) -> bool:
    return all(value.tobytes() == values[0].tobytes() for value in values[1:])


def _flattened(metrics: Iterable[Any]) -> Iterator[Any]:
    for metric in metrics:
        yield metric
        yield from _flattened(getattr(metric, "metrics", ()))
