"""The variables of a training by name: weights, seeds, optimizers, metrics."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from .. import _upstream

_OPTIMIZER = "optimizer-"

Variables = dict[str, keras.Variable]
"""By a name that the same model has in another process, such as `model/003/dense/kernel`."""


def state_variables(model: keras.Model) -> Variables:
    """Return weights, seeds and the optimizers' variables, by name.

    Args:
        model: A compiled model that was built.
    """
    groups = {"model": list(model.variables)}
    for number, optimizer in enumerate(_upstream.optimizers_of(model)):
        groups[f"{_OPTIMIZER}{number}"] = list(optimizer.variables)
    seed = _upstream.global_seed_state()
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
        [names[id(one)] for one in _upstream.trained_variables(optimizer) if id(one) in names]
        for optimizer in _upstream.optimizers_of(model)
    ]


def averages_of_weights(model: keras.Model) -> dict[str, str]:
    """Return, by a weight's name, the name of its average, where an optimizer keeps one."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    return {
        names[id(weight)]: names[id(average)]
        for optimizer in _upstream.optimizers_of(model)
        for weight, average in _upstream.averaged_variables(optimizer)
        if id(weight) in names and id(average) in names
    }


def build_optimizers(model: keras.Model, built_for: Iterable[Iterable[str]]) -> None:
    """Build those that were not, such as a GAN's, which else build themselves in its first step.

    Args:
        model: The model.
        built_for: What `optimizers_built_for` returned.
    """
    variables = state_variables(model)
    for optimizer, names in zip(_upstream.optimizers_of(model), built_for, strict=False):
        trained = [variables[name] for name in names if name in variables]
        if trained and not optimizer.built:
            with model.distribute_strategy.scope():
                optimizer.build(trained)


def first_difference(
    variables: Mapping[str, keras.Variable], saved: Mapping[str, np.ndarray], stacked: Iterable[str]
) -> str | None:
    """Return in what a checkpoint's variables differ from a model's; `None` where they do not.

    Args:
        variables: The model's.
        saved: The checkpoint's arrays.
        stacked: Names of those that have a value for each replica, along the first axis.
    """
    per_replica = {*stacked}
    here = [_described(name, tuple(one.shape), one.dtype) for name, one in variables.items()]
    there = [
        _described(name, array.shape[1:] if name in per_replica else array.shape, array.dtype.name)
        for name, array in saved.items()
    ]
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
