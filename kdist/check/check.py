"""`Check`: the trainings of one check, made in order, compared and explained."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..distribute.devices import stock_strategy
from ..distribute.tensorflow_logging import quiet_stderr
from ..errors import UserError
from ..user_model.data import checked_data
from ..user_model.functions import takes_hp
from .batches import batches_of, call_data
from .causes.data import check_data, check_samples
from .explanation import compared_with, explain
from .notes import batches_text, joined, notes_on
from .options import CheckOptions
from .precision import Precision
from .result import CheckResult
from .training import Plan, Trained, kdist_strategy, train


class Check:
    """One check: its trainings, made in order.

    Args:
        build: As for `check_model`.
        data: The same.
        options: Its other arguments.
        strategies: Of kdist, one for each number of replicas; `None` makes them.

    Attributes:
        batches: The samples of all trainings.
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
        made = checked_data(call_data(data, options.requested_batch_size))
        self.batches = batches_of(made.training, options)
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
                    stock_strategy(self._strategies[0].devices),
                    name=f"{options.replicas[0]} replicas of stock tf.distribute.MirroredStrategy",
                    scored=options.scored,
                )
            causes = check_data(self._data, options) or check_samples(self._data, trainings)
            compared, found = explain(plan, one, trainings, precision)
        return CheckResult(
            trainings=compared,
            stock=None
            if stock is None
            else compared_with(one.record, stock.record, precision, None),
            causes=causes + found,
            precision=str(precision),
            batches=batches_text(plan.batches, options),
            compared=f"{joined([t.record.name for t in trainings])} with one replica of stock"
            f" Keras, over {plan.batches.steps * plan.epochs} steps",
            notes=notes_on(one, plan.batches),
        )

    _reason = ""

    def plan(self, asked: Any) -> Plan:
        """What all trainings have in common.

        Args:
            asked: The floats that Keras is set to, `"float64"` or `"float32"`.
        """
        return Plan(
            build=self._build,
            batches=self.batches.in_float64() if asked == "float64" else self.batches,
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
    if not takes_hp(build):
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
    if plan.asked == "float64" and not dtypes & {"float16", "bfloat16", "float32"}:
        return Precision(level="float64", asked="float64")
    epsilon = max(
        (_EPSILON.get(w.dtype, 2.0**-7) for w in one.model.trainable_variables), default=0
    )
    is_mixed = bool(dtypes & {"float16", "bfloat16"})
    reason = reason or "a layer of it computes in float32"
    return Precision(
        level="float16" if is_mixed else "float32",
        asked=plan.asked,
        reason="its policy is mixed precision" if is_mixed else reason,
        weights_epsilon=epsilon,
    )


_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
