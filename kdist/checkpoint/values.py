"""The values of a training: variables by name as arrays, other state as JSON."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.internals import (
    averaged_variables,
    global_seed_state,
    optimizers_of,
    trained_variables,
)
from ..spmd.divided_variables import DividedVariable
from ..spmd.replica_count import ReplicaNumber

_OPTIMIZER = "optimizer-"

Variables = dict[str, keras.Variable]
"""By a name that the same model has in another process, such as `model/003/dense/kernel`."""


def state_variables(model: keras.Model) -> Variables:
    """Return weights, seeds and the optimizers' variables, by name.

    Args:
        model: A compiled model that was built.
    """
    groups = {"model": list(model.variables)}
    for number, optimizer in enumerate(optimizers_of(model)):
        groups[f"{_OPTIMIZER}{number}"] = list(optimizer.variables)
    seed = global_seed_state()
    groups["global-seed"] = [] if seed is None else [seed]
    metrics = {id(variable) for variable in model.metrics_variables}
    return {
        name: variable
        for name, variable in _named(groups).items()
        if id(variable) not in metrics  # those are of the epoch
    }


def metric_variables(model: keras.Model) -> Variables:
    """Return what the metrics have counted in the epoch so far, by name."""
    return _named({"metrics": list(model.metrics_variables)})


def optimizers_built_for(model: keras.Model) -> list[list[str]]:
    """Return the names of the variables that each optimizer was built for."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    return [
        [names[id(one)] for one in trained_variables(optimizer) if id(one) in names]
        for optimizer in optimizers_of(model)
    ]


def averages_of_weights(model: keras.Model) -> dict[str, str]:
    """Return, by a weight's name, the name of its average, where an optimizer keeps one."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    return {
        names[id(weight)]: names[id(average)]
        for optimizer in optimizers_of(model)
        for weight, average in averaged_variables(optimizer)
        if id(weight) in names and id(average) in names
    }


def build_optimizers(model: keras.Model, built_for: Iterable[Iterable[str]]) -> None:
    """Build those that were not, such as a GAN's, which else build themselves in its first step.

    Args:
        model: The model.
        built_for: What `optimizers_built_for` returned.
    """
    variables = state_variables(model)
    for optimizer, names in zip(optimizers_of(model), built_for, strict=False):
        trained = [variables[name] for name in names if name in variables]
        if trained and not optimizer.built:
            with model.distribute_strategy.scope():
                optimizer.build(trained)


def unlike_saved(
    variables: Mapping[str, keras.Variable], saved: Mapping[str, np.ndarray]
) -> str | None:
    """Return in what a checkpoint's variables differ from a model's; `None` where they do not.

    Args:
        variables: The model's.
        saved: The checkpoint's arrays.
    """
    here = [_described(name, tuple(one.shape), one.dtype) for name, one in variables.items()]
    there = [_described(name, array.shape, array.dtype.name) for name, array in saved.items()]
    for own, other in zip(here, there, strict=False):
        if own != other:
            return f"the checkpoint has {other} where this training has {own}"
    if len(here) != len(there):
        longer, who = (
            (there, "the checkpoint") if len(there) > len(here) else (here, "this training")
        )
        return f"only {who} has {longer[min(len(here), len(there))]}"
    return None


def _named(groups: Mapping[str, list[keras.Variable]]) -> Variables:
    found: Variables = {}
    seen: set[int] = set()
    for group, variables in groups.items():
        for number, variable in enumerate(variables):
            if id(variable) not in seen:
                seen.add(id(variable))
                path = _general(variable.path)
                if group.startswith(_OPTIMIZER):
                    # One inside another has the other's name before its own, or not: it depends
                    # on who built it, the first step or `fit`.
                    path = "/".join(path.split("/")[-2:])
                found[f"{group}/{number:04d}/{path}"] = variable
    return found


def _general(path: str) -> str:
    """Keras numbers the layers of a process, so that a model made second has other names."""
    return re.sub(r"_\d+(?=[_/]|$)", "", path)


def _described(name: str, shape: tuple[int | None, ...], dtype: Any) -> str:
    group, _, path = name.split("/", 2)
    owner = group.partition("-")[0]
    return f"{owner}'s {path} {list(shape)} {dtype}"


def copy_values(
    variables: Variables,
    *,
    into: Mapping[str, np.ndarray] | None = None,
    is_chief: bool = True,
) -> dict[str, np.ndarray]:
    """Copy the values of variables into arrays that nothing else holds, by name.

    Args:
        variables: By name.
        into: Arrays of an earlier copy that nobody needs, to be filled again: a copy into memory
            that is new to the process takes twice as long.
        is_chief: Whether this worker keeps the copies. Another one only takes part in gathering
            what is divided over all of them.
    """
    if not is_chief:
        for variable in variables.values():
            if isinstance(variable.value, DividedVariable):
                variable.value.read_value()
        return {}
    return {
        name: _copy(np.asarray(_parts(variable)[0].read_value()), (into or {}).get(name))
        for name, variable in variables.items()
    }


def assign_values(variables: Variables, arrays: Mapping[str, np.ndarray]) -> None:
    """Give variables the values that `copy_values` has copied, on any number of replicas.

    Args:
        variables: By name.
        arrays: By the same names.
    """
    for name, variable in variables.items():
        for part in _parts(variable):
            part.assign(arrays[name])


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


def to_json(state: Any, *, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value that `json.dumps` takes and `from_json` turns back.

    Args:
        state: None, booleans, numbers, text, bytes, NumPy arrays and numbers, tensors; and lists,
            tuples and dictionaries of these.
        name: What the state is of, which begins the names of its arrays.
        arrays: Gets copies of the arrays.

    Raises:
        TypeError: The state has a value of another type; the message says where.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, ReplicaNumber):
        return state.real
    if hasattr(state, "numpy"):
        state = state.numpy()
    if isinstance(state, np.ndarray) and state.dtype.kind not in "OSUMm":
        arrays[name] = np.array(state)  # which its owner may change while it is written
        return {"$array": name}
    if isinstance(state, np.generic) and state.dtype.kind not in "OSUMm":
        return {"$number": [state.dtype.name, base64.b64encode(state.tobytes()).decode()]}
    if isinstance(state, bytes):
        return {"$bytes": base64.b64encode(state).decode()}
    if type(state) in (list, tuple):
        items = [to_json(v, name=f"{name}/{i}", arrays=arrays) for i, v in enumerate(state)]
        return items if isinstance(state, list) else {"$tuple": items}
    if isinstance(state, Mapping):
        return _dict_to_json(state, name, arrays)
    raise TypeError(f"{name} is of the type {type(state).__name__}, which cannot be saved")


def from_json(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the state that `to_json` was given.

    Args:
        value: What `to_json` returned.
        arrays: What it put into `arrays`; each array in the state is its own copy.
    """
    if isinstance(value, list):
        return [from_json(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: from_json(item, arrays) for key, item in value.items()}
    [(kind, content)] = value.items()
    if kind == "$array":
        return np.array(arrays[content])
    if kind == "$number":
        return np.frombuffer(base64.b64decode(content[1]), np.dtype(content[0]))[0]
    if kind == "$bytes":
        return base64.b64decode(content)
    if kind == "$tuple":
        return tuple(from_json(item, arrays) for item in content)
    return {from_json(k, arrays): from_json(v, arrays) for k, v in content}  # $dict


def _dict_to_json(state: Mapping[Any, Any], name: str, arrays: dict[str, np.ndarray]) -> Any:
    items = [
        (
            to_json(k, name=f"{name}/key", arrays=arrays),
            to_json(v, name=f"{name}/{k}", arrays=arrays),
        )
        for k, v in state.items()
    ]
    if all(isinstance(key, str) and not key.startswith("$") for key in state):
        return dict(items)
    return {"$dict": items}
