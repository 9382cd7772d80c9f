"""`RecordSteps`: a callback that records weights, optimizers and logs after every step."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from .record import Record


class RecordSteps(keras.callbacks.Callback):
    """Records a training.

    Args:
        record: Where to.
        steps: Of an epoch.
        start: Called with the model as training begins, before its first weights are recorded.
    """

    def __init__(
        self, record: Record, steps: int, start: Callable[[keras.Model], None] | None
    ) -> None:
        super().__init__()
        self._record = record
        self._steps = steps
        self._start = start
        self._epoch = 0
        self.step = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Record the initial weights."""
        del logs
        if self._start is not None:
            _upstream.build_for_fit(self.model)  # without a strategy the first step would do it
            self._start(self.model)
        self._record.layers = layers_of(self.model)
        self._record.add(0, "initial weights", named_values(self.model))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count the epochs."""
        del logs
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record what the step has changed."""
        self.step = self._epoch * self._steps + batch + 1
        record, step = self._record, self.step
        if step == 1:
            record.layers = layers_of(self.model)  # with those that this step has built
        logs = {name: value for name, value in (logs or {}).items() if _is_number(value)}
        losses = {name: value for name, value in logs.items() if _is_loss(name)}
        record.add(step, "loss", losses)
        record.add(step, "metric", {n: v for n, v in logs.items() if n not in losses})
        trained = {id(v) for v in self.model.trainable_variables}
        values = named_variables(self.model)
        weights = {name: v for name, v in values.items() if id(v) in trained}
        record.add(step, "weights", _numpy(weights))
        record.add(step, "state", _numpy({n: v for n, v in values.items() if n not in weights}))
        optimizers = [v for one in _upstream.optimizers_of(self.model) for v in one.variables]
        record.add(step, "optimizer", _numpy(_by_name(optimizers)))


def named_values(model: keras.Model) -> dict[str, Any]:
    """The weights of a model by their paths, in NumPy arrays."""
    return _numpy(named_variables(model))


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The weights of a model by their paths; those of the same path are numbered."""
    return _by_name(model.weights)


def layers_of(model: keras.Model) -> dict[str, str]:
    """The name of the layer that each of a model's weights belongs to."""
    owners: dict[int, keras.layers.Layer] = {}
    for layer in [model, *_upstream.flatten_layers(model)]:
        for variable in layer.weights:
            known = owners.get(id(variable))
            if known is None or len(layer.weights) <= len(known.weights):
                owners[id(variable)] = layer
    return {
        name: owners[id(variable)].name
        for name, variable in named_variables(model).items()
        if id(variable) in owners
    }


def copies_of(model: keras.Model, strategy: tf.distribute.Strategy) -> dict[str, float]:
    """By how much the replicas' copies of each weight differ at most."""
    return {
        name: _spread(strategy.experimental_local_results(variable.value))
        for name, variable in named_variables(model).items()
    }


def _spread(copies: Sequence[Any]) -> float:
    first, *others = [np.asarray(copy, "float64") for copy in copies]
    gaps = [np.max(np.abs(first - other), initial=0.0) for other in others]
    return float(np.nan_to_num(max(gaps, default=0.0), nan=0.0))


def _by_name(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name, number = variable.path, 2
        while name in named:
            name, number = f"{variable.path} ({number})", number + 1
        named[name] = variable
    return named


def _numpy(variables: dict[str, keras.Variable]) -> dict[str, Any]:
    return {name: variable.numpy() for name, variable in variables.items()}


def _is_number(value: Any) -> bool:
    return value is not None and np.asarray(value).dtype.kind in "biufc"


def _is_loss(name: str) -> bool:
    return name == "loss" or name.endswith("_loss")
