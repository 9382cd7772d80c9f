"""`check_model`: train a model on one replica of stock Keras and on several kdist replicas.

`comparison.py` records the values of each training, and compares them.
"""

import contextlib
import dataclasses
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from ..._upstream.fit import build_for_fit
from ..._upstream.models import flatten_layers, has_call, optimizers_of
from ..._upstream.seeds import keep_seeds
from ...errors import (
    UserError,
    find_last_user_line,
    find_raising_user_line,
    places_after_check_model,
)
from ...spmd.stage import WRONG_DIVISION
from ...spmd.validation import validate_steps
from ...strategies.exact_strategy import ExactStrategy
from ...strategies.mirrored_strategy import MirroredStrategy
from ...strategies.prepare_tensorflow import quiet_stderr
from ...training.user_model.compiled_model import check_model_result
from ...training.user_model.user_functions import UserFunctions, explain_exception
from .check_batches import Batches, read_batches
from .check_options import CheckOptions
from .comparison import STOCK_KERAS, CheckResult, Difference, Precision, Record, compare

_METRICS = "/keras/src/metrics/"


def make_strategies(options: CheckOptions) -> list[ExactStrategy]:
    """Return a strategy for each number of replicas. The call fixes the number of logical CPUs."""
    MirroredStrategy(replicas=max(options.replicas))  # first, as the largest splits the CPU
    return [
        MirroredStrategy(replicas=count, shards=options.shards, shard_weights=options.shard_weights)
        for count in options.replicas
    ]


def check_model(
    build: Callable[..., Any],
    data: Any,
    *,
    replicas: Sequence[int] = (2, 3),
    steps: int = 6,
    batch_size: int | None = None,
    seed: int = 0,
    bits: bool = False,
    shard_weights: bool = False,
) -> CheckResult:
    """Train a model on one replica and on several replicas, and report the first differences.

    The model is trained on one replica of stock Keras and on each number of replicas of kdist, on
    logical CPUs if there is no GPU. All runs have the same initial weights, samples and seed. All
    runs use float64 if the model allows it, and have an uneven last batch in each epoch. Weights,
    optimizer state, losses and metrics are compared after every step; `evaluate` and `predict`
    after training. Afterwards, Keras's settings and the state of all random generators of the
    program are restored.

    Args:
        build: A function that returns a compiled `keras.Model`.
        data: A function that returns the data, or the data itself: arrays `(x, y)` or `(x, y,
            sample_weight)`, all with the samples along the first axis, or a `tf.data.Dataset` or
            `keras.utils.PyDataset`. Validation data may follow, and are not used.
        replicas: Numbers of replicas of kdist.
        steps: Training steps, in two epochs if there are at least 4.
        batch_size: Samples per global batch of arrays; by default at least 8, divisible by all
            numbers of replicas. Batched data keep their batch size.
        seed: The seed of all training runs.
        bits: Whether to compare bit for bit. All runs, also the run on one replica, then use kdist
            with the same number of shards, in the model's own precision.
        shard_weights: As for `kdist.MirroredStrategy`.

    Returns:
        The result: `equal`, `differences`, `assert_equal()`. `print` shows it.

    Raises:
        UserError: An argument is invalid, the model does not train on one replica, or TensorFlow
            has already started with fewer logical CPUs.

    Examples:
        ```python
        def test_that_replicas_do_not_matter():
            kdist.check_model(build, data, replicas=(2, 3)).assert_equal()
        ```
    """
    options = CheckOptions(
        replicas=replicas,
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        bits=bits,
        shard_weights=shard_weights,
    )
    if not callable(build) or isinstance(build, keras.Model):
        raise UserError(
            "build has to be a function that makes a compiled model, received"
            f" {type(build).__name__}: pass build, not build()"
        )
    strategies = make_strategies(options)
    is_data = not callable(data) or isinstance(data, tf.data.Dataset | keras.utils.PyDataset)
    functions = UserFunctions(build=build, make_data=(lambda: data) if is_data else data)
    with keep_seeds():
        keras.utils.set_random_seed(options.seed)
        return run_check(functions, strategies, options)


def run_check(
    functions: UserFunctions,
    strategies: Sequence[ExactStrategy],
    options: CheckOptions,
    *,
    float64: bool = True,
) -> CheckResult:
    """Compare training under strategies with training on one replica; see `check_model`."""
    data = functions.load_data(options.full_batch)
    functions.check_batch(data, options.batch_size)
    batches = read_batches(data, options.steps_per_epoch, options.full_batch)
    settings = RunSettings(build=functions.make_model, batches=batches, options=options)
    with quiet_stderr():
        if options.bits:
            alone = MirroredStrategy(replicas=1, shards=options.shards)
            reference = record_training(settings, alone, name="one replica")
            precision = Precision("bits")
            if reference.error:
                raise UserError(f"the model does not train on one replica: {reference.error}")
        else:
            settings, reference, precision = _train_reference(settings, float64)
        runs = [
            record_training(settings, strategy, name=f"{strategy.num_replicas_in_sync} replicas")
            for strategy in strategies
        ]
        found, repeated, precision = _compare_runs(settings, reference, runs, precision)
        notes = list(reference.notes)
        for strategy, run in zip(strategies, runs, strict=True):
            if found[run.name] and not repeated and not run.error:
                notes.append(f"{run.name}: {_find_wrong_operation(settings, strategy)}")
                break
    return CheckResult(
        differences=found,
        errors={run.name: run.error for run in runs if run.error},
        unrepeatable=repeated,
        precision=str(precision),
        steps=_describe_steps(batches.sizes, options.epochs),
        notes=notes,
        reference=f"one replica of {options.shards} shards" if options.bits else STOCK_KERAS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of all training runs.

    Attributes:
        build: Makes the compiled model.
        batches: Batches of an epoch.
        options: Options of the check.
        floats: Keras's default type of floats during training.
        is_evaluated: Whether to call the model's `evaluate`; false after it failed on one replica.
    """

    build: Callable[[], Any]
    batches: Batches
    options: CheckOptions
    floats: Literal["float64", "float32"] = "float32"
    is_evaluated: bool = True


def record_training(
    settings: RunSettings,
    strategy: ExactStrategy | None = None,
    *,
    name: str,
    perturb: Callable[[keras.Model], None] | None = None,
) -> Record:
    """Train the model, and record its values, or the error that it raises.

    Without a strategy, stock Keras trains. `perturb` changes the model as training begins.
    """
    record = Record(name=name)
    with _silence_messages(), _keras_floats(settings.floats):
        keras.utils.set_random_seed(settings.options.seed)
        try:
            record.model = _make_model(settings, strategy)
            _fit_model(settings, strategy, record, perturb)
        except Exception as error:
            where = "" if isinstance(error, UserError) else find_raising_user_line(error)
            record.error = f"{where}: " * bool(where) + explain_exception(error)
            record.message = str(error)
    return record


def _find_wrong_operation(settings: RunSettings, strategy: ExactStrategy) -> str:
    """Find the wrongly divided operation by a training with validated steps; return its message."""
    with validate_steps():
        record = record_training(settings, strategy, name="validated")
    if wrong := re.search(f"{WRONG_DIVISION}.*", record.message):
        return wrong[0]
    return (
        "kdist divides every operation correctly, so the model's code or its inputs differ between"
        " one and several replicas"
    )


def _make_model(settings: RunSettings, strategy: ExactStrategy | None) -> keras.Model:
    model = settings.build() if strategy is None else strategy.build(settings.build)
    model = check_model_result(model, function="build")
    if strategy is None or not model.jit_compile:
        model.jit_compile = False  # replicas use XLA if the model does, and draw the same numbers
    if model.steps_per_execution == "auto":
        model.steps_per_execution = 1
    return model


def _fit_model(
    settings: RunSettings,
    strategy: ExactStrategy | None,
    record: Record,
    perturb: Callable[[keras.Model], None] | None,
) -> None:
    model, batches = record.model, settings.batches
    steps = _RecordSteps(record, len(batches.parts), perturb)
    data, epochs = batches.to_dataset(), settings.options.epochs
    model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[steps])
    after = epochs * len(batches.parts) + 1
    names = dict.fromkeys(_name_by_path(model.weights), 0.0)
    record.add(after, "copies", names if strategy is None else _replica_spreads(model, strategy))
    if settings.is_evaluated:
        try:
            scores = model.evaluate(batches.to_dataset(), verbose=0, return_dict=True)
        except Exception as error:
            if strategy is not None:
                raise
            # For example a GAN with a `train_step`, but without `call` or `test_step`.
            record.notes.append(
                "evaluate is not compared, because it fails even on one replica:"
                f" {explain_exception(error)}"
            )
        else:
            record.add(after, "evaluate", scores)
    if has_call(model):
        outputs = keras.tree.flatten(model.predict(batches.inputs_to_dataset(), verbose=0))
        named = {f"output {index}": output for index, output in enumerate(outputs)}
        record.add(after, "predictions", named)


class _RecordSteps(keras.callbacks.Callback):
    """Records weights, optimizers and logs after every step."""

    def __init__(
        self, record: Record, steps: int, perturb: Callable[[keras.Model], None] | None
    ) -> None:
        super().__init__()
        self._record, self._steps, self._perturb = record, steps, perturb
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if self._perturb is not None:
            build_for_fit(self.model)  # without a strategy, the first step would build the model
            self._perturb(self.model)
        self._record.add(0, "initial weights", _read_variables(self.model.weights))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model, step = self.model, self._epoch * self._steps + batch + 1
        numbers = {
            name: value
            for name, value in (logs or {}).items()
            if np.asarray(value).dtype.kind in "biufc"
        }
        losses = {name: value for name, value in numbers.items() if name.endswith("loss")}
        self._record.add(step, "loss", losses)
        trained = {id(variable) for variable in model.trainable_weights}
        self._record.add(
            step,
            "state",
            _read_variables(variable for variable in model.weights if id(variable) not in trained),
        )
        self._record.add(step, "weights", _read_variables(model.trainable_weights))
        state = [variable for optimizer in optimizers_of(model) for variable in optimizer.variables]
        self._record.add(step, "optimizer", _read_variables(state))
        metrics = {name: value for name, value in numbers.items() if name not in losses}
        self._record.add(step, "metric", metrics)


def _read_variables(variables: Any) -> dict[str, Any]:
    return {name: variable.numpy() for name, variable in _name_by_path(variables).items()}


def _name_by_path(variables: Any) -> dict[str, keras.Variable]:
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name, number = variable.path, 2
        while name in named:
            name, number = f"{variable.path} ({number})", number + 1
        named[name] = variable
    return named


def _replica_spreads(model: keras.Model, strategy: Any) -> dict[str, float]:
    """Return the largest difference between the replicas' copies of each weight."""
    spreads = {}
    for name, variable in _name_by_path(model.weights).items():
        copies = strategy.experimental_local_results(variable.value)
        values = np.array([np.nan_to_num(np.asarray(copy, "float64")) for copy in copies])
        spreads[name] = float(np.max(np.abs(values - values[0]), initial=0))
    return spreads


def _train_reference(settings: RunSettings, float64: bool) -> tuple[RunSettings, Record, Precision]:
    """Train on one replica, in float64 if the model allows it."""
    reason = "" if float64 else "as GPUs train"
    wide = dataclasses.replace(settings, floats="float64", batches=settings.batches.to_float64())
    for tried in (wide, settings) if float64 else (settings,):
        reference = record_training(tried, name="one replica")
        if not reference.error:
            tried = dataclasses.replace(tried, is_evaluated=not reference.notes)
            return tried, reference, _model_precision(reference.model, tried, reason)
        reason = reason or f"float64 fails: {reference.error.rstrip('.')}"
    raise UserError(f"the model does not train on one replica: {reference.error}")


def _model_precision(model: keras.Model, settings: RunSettings, reason: str) -> Precision:
    layers = [model, *flatten_layers(model)]
    dtypes = {layer.compute_dtype for layer in layers}
    if dtypes & {"float16", "bfloat16"}:
        return Precision("float16", "the model's policy is mixed precision")
    if settings.floats == "float64" and "float32" not in dtypes:
        return Precision()
    return Precision("float32", reason or "a layer computes in float32")


def _compare_runs(
    settings: RunSettings, reference: Record, runs: Sequence[Record], precision: Precision
) -> tuple[dict[str, Sequence[Difference]], Sequence[Difference], Precision]:
    """Compare the runs; if they differ, repeat the run on one replica, and simulate rounding."""

    def differences(
        precision: Precision, rounded: Record | None = None
    ) -> dict[str, Sequence[Difference]]:
        return {run.name: compare(reference, run, precision, rounded) for run in runs}

    found = differences(precision)
    if not any(found.values()) or precision.level == "bits":
        return found, [], precision
    repeated = compare(reference, record_training(settings, name="again"), precision)
    if repeated:
        return found, repeated, precision
    levels = [precision]
    line = _find_float32_line(settings, reference.model) if precision.level == "float64" else ""
    if line:
        levels.append(Precision("float32", line))
    for level in levels:
        rounded = record_training(settings, name="rounded", perturb=_perturb_weights(level))
        beyond = differences(level, rounded)
        if not any(beyond.values()):
            return beyond, [], level
    return found, [], precision


def _find_float32_line(settings: RunSettings, model: keras.Model) -> str:
    """Return the first line of a step that computes in float32 although Keras is set to float64.

    Keras's metrics are skipped: their float32 sums do not justify a larger tolerance.
    """
    dataset = settings.batches.to_dataset()
    with _silence_messages(), _keras_floats(settings.floats):
        step = tf.function(lambda batches: model.train_step(next(batches)), autograph=False)
        graph = step.get_concrete_function(iter(dataset)).graph
    for op in graph.get_operations():
        if op.type == "Const" or tf.float32 not in {output.dtype for output in op.outputs}:
            continue
        places = [(frame.filename, frame.lineno) for frame in op.traceback]
        if not any(_METRICS in path for path, _ in places):
            line = (
                find_last_user_line(places_after_check_model(places))
                or f"{places[-1][0]}:{places[-1][1]}"
            )
            return f"{line} computes in float32"
    bodies = graph.as_graph_def().library.function
    if any(_is_float32(node) for body in bodies for node in body.node_def):
        return "a function of the step computes in float32"
    return ""


def _is_float32(node: Any) -> bool:
    return node.op != "Const" and any(
        node.attr[name].type == tf.float32.as_datatype_enum for name in ("T", "DstT", "dtype")
    )


def _perturb_weights(precision: Precision) -> Callable[[keras.Model], None]:
    """Return a function that changes initial weights by a rounding error."""
    draw = np.random.default_rng(0)

    def perturb(model: keras.Model) -> None:
        for weight in model.trainable_variables:
            value = weight.numpy()
            factor = 1 + precision.rounding_step * draw.uniform(-1, 1, value.shape)
            weight.assign((value * factor).astype(value.dtype))

    return perturb


def _describe_steps(sizes: Sequence[int], epochs: int) -> str:
    shown = ", ".join(map(str, sizes)) if len(sizes) <= 6 else f"{sizes[0]} … {sizes[-1]}"
    return f"{epochs} epoch{'s' * (epochs > 1)} of batches of {shown} samples"


@contextlib.contextmanager
def _keras_floats(floats: Literal["float64", "float32"]) -> Iterator[None]:
    """Set Keras's float type, unless the program uses a policy such as mixed precision."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    if floats == "float64" and policy.name == "float32":
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)


@contextlib.contextmanager
def _silence_messages() -> Iterator[None]:
    """Keep warnings and the log messages of steps off the console."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "kdist")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
