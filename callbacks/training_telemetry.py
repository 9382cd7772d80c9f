"""`TrainingTelemetry`: histograms and norms of weights, gradients and outputs, layer by layer."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from .._upstream.hooks import is_chief
from ..arguments import positive_integer
from ..distribute.exact_strategy import ExactStrategy
from ..distribute.telemetry import StepTelemetry
from ..errors import UserError
from .resumable import ResumableCallback
from .step_measurement import LayerNames, StepMeasurement

_LOGGED = ("gradient_norm", "weight_norm", "update_ratio")


class TrainingTelemetry(ResumableCallback):
    """Measures weights, gradients and layers' outputs while a model trains.

    In the first step and then every `every_steps` steps, the step itself measures on its devices:

    * histograms of the weights and of the global batch's gradients, that is, the gradients after
      the sum over replicas, before the optimizer clips them, and without the loss scale of mixed
      precision;
    * by layer, the norms of weights and gradients and the update ratio, |update| / |weights|. A
      ratio near 0.001 is common; 0.1 means that the learning rate is too high, 0.00001 that it is
      too low;
    * histograms of the outputs of layers over the global batch (the activations) and their share of
      zeros: a ReLU whose outputs are all zeros is dead.

    All values equal those of one replica with the same global batch; histograms and shares have
    exactly the same counts, except for outputs that rounding moves across the edge of a bin.

    After an epoch it prints one line, and adds `gradient_norm`, `weight_norm` and `update_ratio` of
    the whole model to `logs`, as of the last measured step. `kdist.tracking.tracking` with
    `telemetry=` writes all of it to TensorBoard and W&B.

    The model has to be created under `kdist.MirroredStrategy` (`replicas=1` works too). A custom
    `train_step` may use several optimizers that are attributes of the model. Layers inside a loop,
    such as the cell of an RNN, are not measured, but their outer layer is. With gradient
    accumulation, only steps that update the weights are measured; the gradients are those of that
    step alone.

    Args:
        every_steps: Steps between measurements. One costs about as much as a step, so the default
            adds about 1 %.
        verbose: 0 prints nothing and only fills `logs` and attributes.

    Attributes:
        measurement: The last `StepMeasurement`; `None` before the first.

    Raises:
        UserError: If an argument is invalid, or, when training begins, if the model was not created
            under `kdist.MirroredStrategy` or has no weights yet.

    Example:
        ```python
        telemetry = TrainingTelemetry(every_steps=100)
        model.fit(train, epochs=3, callbacks=[telemetry])
        telemetry.measurement.layers["dense"].update_ratio
        telemetry.measurement.outputs["dense"].zero_fraction
        ```
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0, "measured": None}
    steps: int
    measured: dict[str, Any] | None
    """What an epoch's line and `logs` have of the last measured step, also of a resumed run."""

    def __init__(
        self,
        *,
        every_steps: int = 100,
        verbose: int = 1,
    ) -> None:
        super().__init__(verbose=verbose)
        self.every_steps = positive_integer(
            "every_steps", every_steps, hint="pass steps between measurements"
        )
        self.measurement: StepMeasurement | None = None
        self._telemetry: StepTelemetry | None = None
        self._names: LayerNames | None = None
        self._listeners: list[Callable[[StepMeasurement], None]] = []
        self._next_due = self._at_most = 0

    def listen(self, listener: Callable[[StepMeasurement], None]) -> None:
        """Call `listener` with every measurement of the next fit, or of the present one.

        Args:
            listener: Takes a `StepMeasurement`; of several workers, only the chief calls it.
        """
        self._listeners.append(listener)

    def get_state(self) -> dict[str, Any]:
        """Return the number of steps so far."""
        if self._telemetry is not None:
            self.steps = self._telemetry.steps_done()
        return super().get_state()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Prepare the measurements; reject a model that cannot be measured."""
        super().on_train_begin(logs)
        self.measurement = None
        strategy = self.model.distribute_strategy
        if not isinstance(strategy, ExactStrategy):
            raise UserError(
                f"{self.model.name} was not made under kdist.MirroredStrategy, whose steps"
                " TrainingTelemetry measures: make it in"
                " kdist.MirroredStrategy(replicas=1).build(lambda: ...), or remove the callback."
            )
        if not self.model.trainable_weights:
            raise UserError(
                f"{self.model.name} has no trainable weights when training begins: build it before"
                " fit, as with keras.Input, or remove TrainingTelemetry."
            )
        self._telemetry = StepTelemetry(self.model, every=self.every_steps, steps=self.steps)
        self._names = LayerNames(self._telemetry)
        self._at_most, self._next_due = self.steps, self._telemetry.next_due(self.steps)
        self._telemetry.attach()
        strategy.model_state(self.model).telemetry = self._telemetry
        self.model.make_train_function(force=True)  # to be traced anew, at its first step

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Read a measurement, if there is a new one."""
        super().on_train_batch_end(batch, logs)
        self._at_most += self.model.steps_per_execution  # the last execution may have fewer
        if self._at_most >= self._next_due:
            self._read()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the last measurement and add its values to `logs`."""
        super().on_epoch_end(epoch, logs)
        if self._telemetry is None:
            return
        self._read()
        self._at_most = self._telemetry.steps_done()
        measured = self.measured or {"line": "nothing measured yet"}
        self.print_line(f"Telemetry: {measured['line']}")
        if logs is not None:
            logs.update({name: measured.get(name, math.nan) for name in _LOGGED})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Stop measuring."""
        if self._telemetry is not None:
            self.steps = self._telemetry.steps_done()
            self._telemetry.detach()
        self.model.distribute_strategy.model_state(self.model).telemetry = None
        self.model.train_function = None
        self._telemetry = self._names = None
        self._listeners = []
        super().on_train_end(logs)

    def _read(self) -> None:
        telemetry, names = self._telemetry, self._names
        if telemetry is None or names is None:
            return
        last = telemetry.last_measured()
        if last < self._next_due:  # an execution had fewer steps, or there is nothing new
            return
        self._next_due = telemetry.next_due(last)
        self.measurement = names.measurement(telemetry.read())
        total = self.measurement.total
        self.measured = {name: getattr(total, name) for name in _LOGGED}
        self.measured["line"] = str(self.measurement)
        if is_chief(self.model):
            for listener in self._listeners:
                listener(self.measurement)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_telemetry": None, "_names": None, "_listeners": []}
