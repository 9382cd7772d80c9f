"""`TrainingTelemetry`: measure histograms and norms of weights and gradients in training."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from .._upstream.hooks import is_chief
from ..arguments import positive_integer
from ..errors import UserError
from ..strategies.exact_strategy import ExactStrategy
from .resumable import ResumableCallback


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class StepMeasurement:
    """The weights and gradients of a training step.

    Attributes:
        step: The step, from 1, over all epochs.
        weights: Values of each trainable weight after the step, by a name such as `conv1/kernel`.
        gradients: Gradients of the global batch, by the same names and with the shapes of the
            weights: before the optimizer clips them, and without the loss scale of mixed precision.
    """

    step: int
    weights: Mapping[str, np.ndarray]
    gradients: Mapping[str, np.ndarray]

    @property
    def weight_norm(self) -> float:
        """The Euclidean norm of all weights as a single vector."""
        return _euclidean_norm(self.weights)

    @property
    def gradient_norm(self) -> float:
        """The Euclidean norm of all gradients as a single vector."""
        return _euclidean_norm(self.gradients)


def _euclidean_norm(arrays: Mapping[str, np.ndarray]) -> float:
    norms = [np.linalg.norm(array.astype("float64")) for array in arrays.values()]
    return float(np.linalg.norm(norms))


class TrainingTelemetry(ResumableCallback):
    """Measures the weights and the global batch's gradients every `every_steps` steps.

    The first step and every `every_steps`-th step store the gradients that the optimizer receives.
    All remaining steps run unchanged. The gradients equal the gradients of one replica with the
    same global batch. After an epoch the callback prints a line, and adds `gradient_norm` and
    `weight_norm` of the last measured step to `logs`. `kdist.tracking.tracking` with `telemetry=`
    writes histograms and norms to TensorBoard and W&B.

    Build the model under `kdist.MirroredStrategy` or without a strategy. The model may have its own
    `train_step` that calls `model.optimizer`. With gradient accumulation, the gradients belong to
    the measured step alone. Of an execution of several steps, only the last is measured. The stored
    gradients take as much memory as the weights, and the measured step is traced separately.

    Args:
        every_steps: Steps between measurements.
        verbose: 0 prints nothing and only fills `logs` and attributes.

    Attributes:
        measurement: The last `StepMeasurement`; `None` before the first measurement.

    Raises:
        UserError: An argument is invalid. When training begins: the model has no weights yet, or
            runs on several replicas of a strategy of TensorFlow.

    Examples:
        ```python
        telemetry = TrainingTelemetry(every_steps=100)
        model.fit(train, epochs=3, callbacks=[telemetry])
        telemetry.measurement.gradients["dense/kernel"]
        ```
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0, "line": None, "norms": {}}
    steps: int
    line: str | None
    norms: dict[str, float]

    def __init__(self, *, every_steps: int = 100, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        self.every_steps = positive_integer(
            "every_steps", every_steps, hint="pass the steps from one measurement to the next"
        )
        self.measurement: StepMeasurement | None = None
        self._listeners: list[Callable[[StepMeasurement], None]] = []
        self._reset()

    def _reset(self) -> None:
        self._gradients: dict[int, tf.Variable] = {}  # by the `id` of the weight
        self._train_function: Any = None
        self._is_due = False
        self._first_step = 0  # number of the execution's first step in its epoch

    def listen(self, listener: Callable[[StepMeasurement], None]) -> None:
        """Call `listener` with every measurement of the current or next fit.

        Args:
            listener: Function of a `StepMeasurement`. With several workers, the chief calls it.
        """
        self._listeners.append(listener)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Create variables for the gradients; reject a model that cannot be measured."""
        super().on_train_begin(logs)
        self.measurement = None
        self._reset()
        strategy = self.model.distribute_strategy
        if strategy.num_replicas_in_sync > 1 and not isinstance(strategy, ExactStrategy):
            raise UserError(
                f"TrainingTelemetry cannot measure {self.model.name}: the"
                f" {strategy.num_replicas_in_sync} replicas of {type(strategy).__name__} have"
                " different gradients. Build the model in"
                " kdist.MirroredStrategy().build(lambda: ...), or remove TrainingTelemetry"
            )
        if not self.model.trainable_weights:
            raise UserError(
                f"{self.model.name} has no trainable weights when training begins: build the model"
                " before fit, for example with keras.Input, or remove TrainingTelemetry"
            )
        with strategy.scope():
            self._gradients = {
                id(weight): tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)
                for weight in self.model.trainable_weights
            }

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """If a measurement is due in the next execution, let the execution store its gradients."""
        super().on_train_batch_begin(batch, logs)
        self._first_step = batch
        last = self.steps + self.model.steps_per_execution
        crosses = last // self.every_steps > self.steps // self.every_steps
        self._is_due = self.steps == 0 or crosses
        if self._is_due:
            self._measure_next_execution()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Read the stored gradients and the weights, if the execution was measured."""
        super().on_train_batch_end(batch, logs)
        self.steps += self.steps_of_epoch_after(batch) - self._first_step
        if self._is_due:
            self._read_measurement()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.line is not None:
            self.print_line(self.line)
        if logs is not None:
            logs.update(self.norms)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._reset()
        self._listeners = []
        super().on_train_end(logs)

    def _measure_next_execution(self) -> None:
        """Replace the train function for one call."""
        model, unmeasured = self.model, self.model.train_function
        if self._train_function is None:
            model.make_train_function(force=True)
            self._train_function = model.train_function
        train_function = self._train_function

        def train_once(iterator: Any) -> Any:
            model.train_function = unmeasured
            with self._stored_gradients():
                return train_function(iterator)

        model.train_function = train_once

    @contextlib.contextmanager
    def _stored_gradients(self) -> Iterator[None]:
        """Store the arguments of `model.optimizer.apply` in steps traced or run in the block."""
        optimizer: Any = self.model.optimizer
        apply = optimizer.apply

        @tf.autograph.experimental.do_not_convert
        def store_and_apply(grads: Any, trainable_variables: Any = None) -> Any:
            gradients = list(grads)
            weights = list(trainable_variables or self.model.trainable_variables)
            for weight, gradient in zip(weights, gradients, strict=True):
                stored = self._gradients.get(id(weight))
                if stored is not None and gradient is not None:
                    dense = tf.convert_to_tensor(gradient)
                    stored.assign(dense / optimizer.scale_loss(tf.ones((), dense.dtype)))
            return apply(gradients, trainable_variables)

        object.__setattr__(optimizer, "apply", store_and_apply)  # not tracked by Keras
        try:
            yield
        finally:
            del vars(optimizer)["apply"]

    def _read_measurement(self) -> None:
        weights = self.model.trainable_weights
        names = _unique_names(weights, prefix=f"{self.model.name}/")
        self.measurement = measurement = StepMeasurement(
            step=self.steps,
            weights={name: weight.numpy() for name, weight in zip(names, weights, strict=True)},
            gradients={
                name: self._gradients[id(weight)].numpy()
                for name, weight in zip(names, weights, strict=True)
            },
        )
        self.norms = {
            "gradient_norm": measurement.gradient_norm,
            "weight_norm": measurement.weight_norm,
        }
        words = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in self.norms.items()]
        self.line = f"Telemetry: step {self.steps}: {', '.join(words)}"
        if is_chief(self.model):
            for listener in self._listeners:
                listener(measurement)

    def __getstate__(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"_gradients": {}, "_train_function": None, "_listeners": []}
        return super().__getstate__() | empty


def _unique_names(weights: list[keras.Variable], *, prefix: str) -> list[str]:
    counts: Counter[str] = Counter()
    names = []
    for weight in weights:
        path = weight.path.removeprefix(prefix)
        names.append(f"{path}_{counts[path]}" if counts[path] else path)
        counts[path] += 1
    return names
