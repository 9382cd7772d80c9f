"""A training's variables as arrays by name, and its remaining state as JSON."""

import base64
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.models import flatten_layers, list_items, optimizers_of
from .._upstream.optimizers import averaged_variables, trained_variables
from .._upstream.seeds import global_seed_state
from ..spmd.divided_variables import DividedVariable
from ..spmd.replica_count import ReplicaNumber

_OPTIMIZER = "optimizer-"

Variables = dict[str, keras.Variable]
"""Variables by name. A model has the same names in every process: `model/0003/dense/kernel`."""


def state_variables(model: keras.Model) -> Variables:
    """Return weights, seeds and the optimizers' variables of a built model, by name."""
    groups = {"model": list(model.variables)}
    for number, optimizer in enumerate(optimizers_of(model)):
        groups[f"{_OPTIMIZER}{number}"] = list(optimizer.variables)
    seed = global_seed_state()
    groups["global-seed"] = [] if seed is None else [seed]
    metrics = {id(variable) for variable in model.metrics_variables}
    return {
        name: variable
        for name, variable in _name_variables(groups).items()
        if id(variable) not in metrics  # metrics belong to the epoch
    }


# State of a layer that is no `keras.Variable`, so that Keras does not know it.
_UNSAVED_TYPES = (tf.Variable, tf.random.Generator, tf.lookup.experimental.MutableHashTable)


def warn_of_unsaved_state(model: keras.Model) -> None:
    """Warn about state in attributes of the user's layers that Keras does not know."""
    unsaved = [
        f"{type(layer).__name__}.{name} ({type(value).__name__})"
        for layer in (model, *flatten_layers(model))
        if not type(layer).__module__.startswith("keras.")
        for name, attribute in vars(layer).items()
        if not name.startswith("_self_")  # TensorFlow's list of the same values
        for value in list_items(attribute)
        if isinstance(value, _UNSAVED_TYPES)
    ]
    if unsaved:
        warnings.warn(
            f"Checkpoint does not save {', '.join(unsaved)}: a resumed run starts it afresh. Make"
            " variables by the layer's add_weight, and draw with keras.random.",
            stacklevel=2,
        )


def metric_variables(model: keras.Model) -> Variables:
    """Return the metrics' variables by name: the totals and counts of the running epoch."""
    return _name_variables({"metrics": list(model.metrics_variables)})


def is_of_optimizer(name: str) -> bool:
    """Whether a variable is an optimizer's, by its name in `state_variables`."""
    return name.startswith(_OPTIMIZER)


def optimizers_built_for(model: keras.Model) -> list[list[str]]:
    """Return, for each optimizer, the names of the variables that the optimizer was built for."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    return [
        [names[id(variable)] for variable in trained_variables(optimizer) if id(variable) in names]
        for optimizer in optimizers_of(model)
    ]


def averages_of_weights(model: keras.Model) -> dict[str, str]:
    """Return the name of each weight's moving average in an optimizer, by the weight's name."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    return {
        names[id(weight)]: names[id(average)]
        for optimizer in optimizers_of(model)
        for weight, average in averaged_variables(optimizer)
        if id(weight) in names and id(average) in names
    }


def build_optimizers(model: keras.Model, built_for: Iterable[Iterable[str]]) -> None:
    """Build the optimizers that are not built yet, for the result of `optimizers_built_for`.

    The optimizers of a GAN, for example, are otherwise built in the first step.
    """
    variables = state_variables(model)
    for optimizer, names in zip(optimizers_of(model), built_for, strict=False):
        trained = [variables[name] for name in names if name in variables]
        if trained and not optimizer.built:
            with model.distribute_strategy.scope():
                optimizer.build(trained)


def find_difference(
    variables: Mapping[str, keras.Variable], saved: Mapping[str, np.ndarray]
) -> str | None:
    """Describe the first difference of a checkpoint's arrays from a model; `None` if they match."""
    here = [
        _describe_variable(name, tuple(variable.shape), variable.dtype)
        for name, variable in variables.items()
    ]
    there = [
        _describe_variable(name, array.shape, array.dtype.name) for name, array in saved.items()
    ]
    for ours, theirs in zip(here, there, strict=False):
        if ours != theirs:
            return f"the checkpoint has {theirs} where this training has {ours}"
    if len(there) > len(here):
        return f"only the checkpoint has {there[len(here)]}"
    return f"only this training has {here[len(there)]}" if len(here) > len(there) else None


def _name_variables(groups: Mapping[str, list[keras.Variable]]) -> Variables:
    found: Variables = {}
    seen: set[int] = set()
    for group, variables in groups.items():
        for number, variable in enumerate(variables):
            if id(variable) not in seen:
                seen.add(id(variable))
                path = _remove_numbers(variable.path)
                if is_of_optimizer(group):
                    # The path of a wrapped optimizer's variable may begin with the wrapper's name:
                    # it depends on whether the first step or `fit` built the optimizer.
                    path = "/".join(path.split("/")[-2:])
                found[f"{group}/{number:04d}/{path}"] = variable
    return found


def _remove_numbers(path: str) -> str:
    """Remove Keras's numbers from a path.

    Keras numbers the layers of a process, so a second model has different numbers.
    """
    return re.sub(r"_\d+(?=[_/]|$)", "", path)


def _describe_variable(name: str, shape: tuple[int | None, ...], dtype: Any) -> str:
    group, _, path = name.split("/", 2)
    owner = group.partition("-")[0]
    return f"{owner}'s {path} {list(shape)} {dtype}"


def copy_values(
    variables: Variables,
    *,
    into: Mapping[str, np.ndarray] | None = None,
    is_chief: bool = True,
) -> dict[str, np.ndarray]:
    """Copy the values of variables into arrays by name, which share no memory with the model.

    Arrays of an earlier copy, `into`, are overwritten: a copy into memory that is new to the
    process takes twice as long. Workers other than the chief only take part in gathering divided
    variables, and return no array.
    """
    if not is_chief:
        for variable in variables.values():
            if isinstance(variable.value, DividedVariable):
                variable.value.read_value()
        return {}
    return {
        name: _copy_array(np.asarray(variable.value.read_value()), (into or {}).get(name))
        for name, variable in variables.items()
    }


def assign_values(variables: Variables, arrays: Mapping[str, np.ndarray]) -> None:
    """Assign the arrays of `copy_values` to variables, on any number of replicas."""
    for name, variable in variables.items():
        variable.value.assign(arrays[name])


def _copy_array(value: np.ndarray, into: np.ndarray | None) -> np.ndarray:
    """Copy a value into `into` if its shape and type are equal, or into a new array."""
    if into is None or (into.shape, into.dtype) != (value.shape, value.dtype):
        return np.array(value)
    np.copyto(into, value)
    return into


def to_json(state: Any, *, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Convert a state to a value for `json.dumps`; `from_json` converts the value back.

    A state has None, booleans, numbers, text, bytes, NumPy arrays and numbers, tensors; and lists,
    tuples and dictionaries of these. `TypeError` says where a value has another type. `arrays`
    receives copies of the arrays, under names that begin with `name`.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, ReplicaNumber):
        return state.real
    if hasattr(state, "numpy"):
        state = state.numpy()
    if isinstance(state, np.ndarray) and state.dtype.kind not in "OSUMm":
        arrays[name] = np.array(state)  # a copy: the owner may change the array during the write
        return {"$array": name}
    if isinstance(state, np.generic) and state.dtype.kind not in "OSUMm":
        return {"$number": [state.dtype.name, base64.b64encode(state.tobytes()).decode()]}
    if isinstance(state, bytes):
        return {"$bytes": base64.b64encode(state).decode()}
    if type(state) in (list, tuple):
        items = [
            to_json(item, name=f"{name}/{index}", arrays=arrays) for index, item in enumerate(state)
        ]
        return items if isinstance(state, list) else {"$tuple": items}
    if isinstance(state, Mapping):
        return _dict_to_json(state, name, arrays)
    raise TypeError(f"{name} is of the type {type(state).__name__}, which cannot be saved")


def from_json(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the state that `to_json` converted, with copies of its arrays."""
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
    return {from_json(key, arrays): from_json(item, arrays) for key, item in content}  # $dict


def _dict_to_json(state: Mapping[Any, Any], name: str, arrays: dict[str, np.ndarray]) -> Any:
    items = [
        (
            to_json(key, name=f"{name}/key", arrays=arrays),
            to_json(item, name=f"{name}/{key}", arrays=arrays),
        )
        for key, item in state.items()
    ]
    if all(isinstance(key, str) and not key.startswith("$") for key in state):
        return dict(items)
    return {"$dict": items}
