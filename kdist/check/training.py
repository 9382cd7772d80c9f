"""`train`: one training of the user's model, recorded step by step."""

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..user_model.code_errors import reason_of
from .batches import Batches
from .precision import Precision, keras_in
from .record import Record
from .record_steps import RecordSteps, copies_of, named_values
from .source_lines import line_of_error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What all trainings have in common.

    Attributes:
        build: Makes the compiled model.
        batches: The samples.
        epochs: How often they are passed over.
        seed: Given to Keras before the model is made.
        synchronize: Whether kdist makes the model with `strategy.build`.
        asked: The floats that Keras is set to.
        on_cpu: Whether GPUs are too few, so that all trainings are on the CPU.
        evaluates: Whether the model can be evaluated, as far as is known.
    """

    build: Callable[[], keras.Model]
    batches: Batches
    epochs: int
    seed: int
    synchronize: bool = True
    asked: Literal["float64", "float32"] = "float64"
    on_cpu: bool = False
    evaluates: bool = True


@dataclasses.dataclass(kw_only=True)
class Trained:
    """A training that is over.

    Attributes:
        record: What it has computed.
        model: Its model; `None` if none was made.
    """

    record: Record
    model: Any = None


class _StockKernels(MirroredStrategy):
    """Draws and rounds as stock Keras does, with which it is compared."""

    def fused_dropout(self, inputs: Any, rate: Any, noise_shape: Any) -> None:
        """Leave dropout to Keras."""

    def fused_activation(self, *arguments: Any, **options: Any) -> None:
        """Leave activations to Keras."""


def kdist_strategy(replicas: int, *, on_cpu: bool) -> MirroredStrategy:
    """Return kdist's strategy on as many replicas.

    Args:
        replicas: Their number.
        on_cpu: Whether to leave the machine's GPUs alone, as they are too few.
    """
    if on_cpu:
        return _StockKernels([f"CPU:{index}" for index in range(replicas)])
    return _StockKernels(replicas=replicas)


def train(
    plan: Plan,
    strategy: tf.distribute.Strategy | None = None,
    *,
    name: str,
    change: Callable[[keras.Model], None] | None = None,
    start: Callable[[keras.Model], None] | None = None,
    scored: bool = True,
) -> Trained:
    """Train the model, and record what it computes.

    Args:
        plan: The model and its data.
        strategy: `None` for stock Keras on one replica.
        name: Of the training, for messages.
        change: Called with the compiled model: what differs from the plan.
        start: Called with the model as its training begins, when it has its weights.
        scored: Whether it is evaluated and asked for predictions after training.

    Returns:
        The training. An exception that it raised is in its record.
    """
    replicas = strategy.num_replicas_in_sync if strategy else 1
    record = Record(name=name, replicas=replicas, is_scored=scored)
    trained = Trained(record=record)
    with _quiet(record), keras_in(plan.asked):
        keras.utils.set_random_seed(plan.seed)
        try:
            model = trained.model = make_model(plan, strategy)
            if change is not None:
                with strategy.scope() if strategy else contextlib.nullcontext():
                    change(model)
            _fit(plan, strategy, model, record, start)
        except UserError as error:
            record.error, record.is_refused = reason_of(error), True
            record.line = line_of_error(error)
        except Exception as error:
            record.error, record.line = reason_of(error), line_of_error(error)
    return trained


def rounded_training(plan: Plan, precision: Precision, *, scored: bool = True) -> Record:
    """Train on one replica from initial weights that were changed by a rounding error.

    Args:
        plan: What all trainings have in common.
        precision: Says how large such an error is.
        scored: Whether it is evaluated after training.
    """
    draw = np.random.default_rng(0)

    def change(model: keras.Model) -> None:
        for weight in model.trainable_variables:
            value = weight.numpy()
            factor = 1 + precision.rounding * draw.uniform(-1, 1, value.shape)
            weight.assign((value * factor).astype(value.dtype))

    return train(plan, name="one, rounded", start=change, scored=scored).record


def make_model(plan: Plan, strategy: tf.distribute.Strategy | None = None) -> keras.Model:
    """Make the model as a user would, without XLA, which rounds in its own way.

    Raises:
        UserError: `build` returned something else than a compiled model.
    """
    if strategy is None:
        with _one_device(plan):
            model = plan.build()
    elif plan.synchronize and isinstance(strategy, _upstream.StrategyHooks):
        model = strategy.build(plan.build)  # type: ignore[attr-defined]
    else:
        with strategy.scope():
            model = plan.build()
    if not isinstance(model, keras.Model) or not model.compiled:
        found = type(model).__name__
        found += " that is not compiled" * isinstance(model, keras.Model)
        raise UserError(
            f"build returned {found}, expected a compiled keras.Model: call model.compile(...), and"
            " end the function with `return model`"
        )
    model.jit_compile = False
    if model.steps_per_execution == "auto":
        model.steps_per_execution = 1
    return model


def _fit(
    plan: Plan,
    strategy: tf.distribute.Strategy | None,
    model: keras.Model,
    record: Record,
    start: Callable[[keras.Model], None] | None,
) -> None:
    steps = RecordSteps(record, plan.batches.steps, start)
    with _one_device(plan) if strategy is None else contextlib.nullcontext():
        model.fit(
            plan.batches.dataset(), epochs=plan.epochs, shuffle=False, verbose=0, callbacks=[steps]
        )
        after = steps.step + 1
        copies = dict.fromkeys(named_values(model), 0.0)
        record.add(after, "copies", copies if strategy is None else copies_of(model, strategy))
        if not record.is_scored:
            return
        if plan.evaluates:
            _evaluate(plan, strategy, model, record, after)
        if _upstream.has_call(model):
            outputs = keras.tree.flatten(model.predict(plan.batches.inputs(), verbose=0))
            predicted = {f"output {index}": np.asarray(out) for index, out in enumerate(outputs)}
            record.add(after, "predictions", predicted)


def _evaluate(
    plan: Plan,
    strategy: tf.distribute.Strategy | None,
    model: keras.Model,
    record: Record,
    step: int,
) -> None:
    try:
        scores = model.evaluate(plan.batches.dataset(), verbose=0, return_dict=True)
    except Exception as error:
        if strategy is not None:
            raise
        # Such as a GAN, which has a `train_step`, but neither `call` nor `test_step`.
        where = line_of_error(error)
        record.unevaluated = f"{where}: " * bool(where) + reason_of(error)
    else:
        record.add(step, "evaluate", scores)


@contextlib.contextmanager
def _one_device(plan: Plan) -> Iterator[None]:
    with tf.device("CPU:0") if plan.on_cpu else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _quiet(record: Record) -> Iterator[None]:
    """Keep warnings off the console; those of kdist go into the record."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells how often functions are traced
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            logger.setLevel(level)
            record.warnings += [
                str(one.message) for one in caught if issubclass(one.category, UserWarning)
            ]
