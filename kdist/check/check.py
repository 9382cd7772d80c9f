"""`Check`: the trainings of one check, made in order, compared and explained."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..distribute.tensorflow_logging import quiet_stderr
from ..errors import UserError
from .batches import Batches, batches_of, call_data, training_part
from .causes.data import check_data
from .causes.table import find_causes
from .comparison import Compared, Difference, compare
from .evidence import Evidence, rounded_training
from .finding import Finding
from .options import CheckOptions
from .precision import Precision
from .record import Record
from .result import CheckResult
from .training import Plan, Trained, kdist_strategy, stock_strategy, train


class Check:
    """One check: its trainings, made in order.

    Args:
        build: As for `check_model`.
        data: The same.
        options: Its other arguments.
        strategies: Of kdist, one for each number of replicas; `None` makes them.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        data: Any,
        options: CheckOptions,
        *,
        strategies: Sequence[tf.distribute.Strategy] | None = None,
    ) -> None:
        if not callable(build) or isinstance(build, keras.Model):
            raise UserError(
                f"build has to be a function that makes a compiled model, received"
                f" {type(build).__name__}: pass check_model(build, data), without calling it"
            )
        self._options = options
        self._data = data
        self._on_cpu = has_too_few_gpus(max(options.replicas))
        # First of all, as this splits the CPU.
        self._strategies = make_strategies(options) if strategies is None else strategies
        keras.utils.set_random_seed(options.seed)
        self._batches = batches_of(
            training_part(call_data(data, options.requested_batch_size)), options
        )
        self._build = as_build(build)

    def result(self, others: Callable[[Plan], list[Trained]] | None = None) -> CheckResult:
        """Train, compare and explain.

        Args:
            others: Makes other trainings that are compared with that on one replica.
        """
        options = self._options
        with quiet_stderr():
            plan, one = self._one()
            precision = precision_of(one, plan, self._reason)
            trainings = [
                train(plan, strategy, name=f"{count} replicas of kdist", scored=options.scored)
                for count, strategy in zip(options.replicas, self._strategies, strict=True)
            ]
            trainings += [] if others is None else others(plan)
            stock = None
            if options.stock:
                stock = train(
                    plan,
                    stock_strategy(self._strategies[0]),
                    name=f"{options.replicas[0]} replicas of stock tf.distribute.MirroredStrategy",
                    scored=options.scored,
                )
            compared, causes = self.explain(plan, one, trainings, precision)
        return CheckResult(
            trainings=compared,
            stock=None
            if stock is None
            else compared_with(one.record, stock.record, precision, None),
            causes=causes,
            precision=str(precision),
            batches=batches_text(plan.batches, options),
            compared=f"{joined([t.record.name for t in trainings])} with one replica of stock"
            f" Keras, over {plan.batches.steps * plan.epochs} steps",
            notes=notes_on(one.record, plan.batches),
        )

    _reason = ""

    def plan(self, asked: Any) -> Plan:
        """What all trainings have in common.

        Args:
            asked: The floats that Keras is set to, `"float64"` or `"float32"`.
        """
        return Plan(
            build=self._build,
            batches=self._batches.in_float64() if asked == "float64" else self._batches,
            epochs=self._options.epochs,
            seed=self._options.seed,
            synchronize=self._options.synchronize,
            asked=asked,
            on_cpu=self._on_cpu,
        )

    def _one(self) -> tuple[Plan, Trained]:
        """Train on one replica, in float64 if the model allows."""
        for asked in ("float64", "float32"):
            plan = self.plan(asked)
            one = train(plan, name="one replica of stock Keras", scored=self._options.scored)
            if not one.record.error:
                return dataclasses.replace(plan, evaluates=not one.record.unevaluated), one
            if one.record.is_refused:
                break
            self._reason = self._reason or f"in float64 it fails ({one.record.error.rstrip('.')})"
        where = f"{one.record.line}: " * bool(one.record.line)
        raise UserError(f"the model does not train on one replica: {where}{one.record.error}")

    def explain(
        self, plan: Plan, one: Trained, trainings: Sequence[Trained], precision: Precision
    ) -> tuple[list[Compared], list[Finding]]:
        """Compare the trainings with that on one replica, and find the causes of differences.

        Args:
            plan: What all trainings have in common.
            one: The training on one replica.
            trainings: Those on several.
            precision: What they compute in.
        """
        causes = check_data(self._data, self._options)
        rounded: Record | None = None
        compared = [compared_with(one.record, t.record, precision, None) for t in trainings]
        if precision.level != "float64" and any(c.differences for c in compared):
            rounded = rounded_training(plan, precision, scored=self._options.scored)
            compared = [compared_with(one.record, t.record, precision, rounded) for t in trainings]
        for training, result in zip(trainings, compared, strict=True):
            if not result.is_equal:
                evidence = Evidence(
                    plan,
                    one,
                    training,
                    list(result.differences),
                    precision,
                )
                causes += find_causes(evidence)
                break
        return compared, causes


def make_strategies(options: CheckOptions) -> list[tf.distribute.Strategy]:
    """Make the strategies of a check; this fixes the number of logical CPUs.

    Raises:
        UserError: TensorFlow has already started with fewer.
    """
    on_cpu = has_too_few_gpus(max(options.replicas))
    largest = kdist_strategy(max(options.replicas), on_cpu=on_cpu)
    return [
        largest if count == largest.num_replicas_in_sync else kdist_strategy(count, on_cpu=on_cpu)
        for count in options.replicas
    ]


def as_build(build: Callable[..., Any]) -> Callable[[], Any]:
    """Return a function without arguments, for one that may take hyperparameters."""
    try:
        given = inspect.signature(build).parameters.values()
    except ValueError:
        return build
    positional = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not any(p.default is p.empty or p.name == "hp" for p in positional):
        return build

    def with_hyperparameters() -> Any:
        import keras_tuner

        return build(keras_tuner.HyperParameters())

    with_hyperparameters.__wrapped__ = build  # type: ignore[attr-defined]
    return with_hyperparameters


def has_too_few_gpus(replicas: int) -> bool:
    """Whether there are GPUs, but not as many as replicas."""
    with quiet_stderr():  # CUDA starts here
        return 0 < len(tf.config.get_visible_devices("GPU")) < replicas


def precision_of(one: Trained, plan: Plan, reason: str) -> Precision:
    """The floats that a model computes in: the least precise of its layers."""
    dtypes = {
        layer.compute_dtype for layer in [one.model, *_upstream.flatten_layers(one.model)]
    } - {None}
    if dtypes & {"float16", "bfloat16"}:
        return Precision(level="float16", asked=plan.asked, reason="its policy is mixed precision")
    if plan.asked == "float64" and "float32" not in dtypes:
        return Precision(level="float64", asked="float64")
    reason = reason or "a layer of it computes in float32"
    return Precision(level="float32", asked=plan.asked, reason=reason)


def compared_with(
    one: Record, received: Record, precision: Precision, rounded: Record | None
) -> Compared:
    """Compare a training with that on one replica."""
    differences: list[Difference] = []
    if not received.error:
        differences = compare(one, received, precision, rounded)
    return Compared(name=received.name, differences=differences, error=_error_of(received))


def _error_of(record: Record) -> str:
    return f"{record.error} ({record.line})" if record.error and record.line else record.error


def batches_text(batches: Batches, options: CheckOptions) -> str:
    """Say how many samples the steps of an epoch have."""
    sizes = [batches.batch_size] * (batches.steps - 1) + [batches.last]
    shown = ", ".join(map(str, sizes)) if len(sizes) <= 6 else f"{sizes[0]} … {sizes[-1]}"
    epochs = f"{options.epochs} epochs" if options.epochs > 1 else "1 epoch"
    return f"{epochs} of batches of {shown} samples"


def notes_on(record: Record, batches: Batches) -> list[str]:
    """What the user should know besides."""
    notes = []
    if record.unevaluated:
        notes.append(f"evaluate is not compared, as it fails on one replica: {record.unevaluated}")
    if batches.last == batches.batch_size:
        why = "the data have batches of a fixed size" if batches.is_fixed else "there are too few"
        notes.append(f"no batch was uneven, as {why}" + " samples" * (not batches.is_fixed))
    losses = [v for item, v in record.values.items() if item.kind == "loss"]
    if any(not np.all(np.isfinite(value)) for value in losses):
        notes.append(
            "the loss is NaN or infinite on one replica, so little can be compared: lower the"
            " learning rate, or look for a logarithm of 0"
        )
    return notes


def joined(names: Sequence[str]) -> str:
    """Names in words: `this, that and these`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
