"""Calls and steps of several workers: calls are compared, and each step runs by itself."""

import contextlib
import inspect
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
from keras.src.trainers import data_adapters

from .collective_launchers import static_keys
from .hooks import StrategyHooks, hooks_of
from .patching import Patch, replaces
from .running_fits import count_rows
from .seeds import seed_digest, seed_state, set_seed_state
from .worker_devices import uses_collectives

_thread = threading.local()


@contextlib.contextmanager
def track_call(name: str, arguments: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Inside the `with` block, the thread is in `fit`, `evaluate` or `predict`."""
    calls: list[_Call] = vars(_thread).setdefault("calls", [])
    calls.append(_Call(name, arguments or {}))
    try:
        yield
    finally:
        calls.pop()


def describe_activity() -> str:
    """Return the calls that the thread is in, such as `evaluate in fit`."""
    names = [call.name for call in _calls()] or ["a step"]
    return " in ".join(reversed(names))


def current_arguments() -> Mapping[str, Any]:
    """Return the arguments of the innermost call that the thread is in."""
    return _calls()[-1].arguments if _calls() else {}


def record_different_data() -> None:
    """Record, for all calls that the thread is in, that each worker reads different data."""
    for call in _calls():
        call.has_different_data = True


def reads_same_data() -> bool:
    """Whether all workers read the same data in the call that the thread is in."""
    return bool(_calls()) and not _calls()[-1].has_different_data


class _Call:
    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name, self.arguments, self.has_different_data = name, arguments, False


def _calls() -> list[_Call]:
    return vars(_thread).get("calls") or []


_COMPARED_ARGUMENTS = ("epochs", "initial_epoch", "validation_freq")
_OWN_DATA_POLICIES = (
    tf.data.experimental.AutoShardPolicy.OFF,
    tf.data.experimental.AutoShardPolicy.FILE,
)
# Adapters that use `shuffle`; the remaining adapters ignore it.
_SHUFFLED = (data_adapters.ArrayDataAdapter, data_adapters.PyDatasetAdapter)


def compared_fit_arguments(fit: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a call of `fit` that have to be equal on all workers."""
    try:
        call = inspect.signature(fit).bind(*args, **options)
    except TypeError:  # the call will raise it
        return {}
    call.apply_defaults()
    given = call.arguments
    is_validated = given.get("validation_data") is not None or bool(given.get("validation_split"))
    return {
        "validation_data": "given" if is_validated else "not given",
        **{name: to_json_value(given.get(name)) for name in _COMPARED_ARGUMENTS},
    }


def describe_data(adapter: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the data of an iterator, except their shapes."""
    weights = options.get("class_weight")
    description: dict[str, Any] = {
        "class_weight": weights and {str(name): float(value) for name, value in weights.items()}
    }
    if not isinstance(adapter, data_adapters.TFDatasetAdapter):
        description["the batch size"] = to_json_value(adapter.batch_size)
        description["the number of rows"] = count_rows(adapter)
    if isinstance(adapter, _SHUFFLED):
        description["shuffle"] = to_json_value(options.get("shuffle"))
    return description


def is_read_by_all(dataset: Any) -> bool:
    """Whether every worker reads all of a dataset, and keeps its part of each batch."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    return dataset.options().experimental_distribute.auto_shard_policy not in _OWN_DATA_POLICIES


def to_json_value(value: Any) -> Any:
    """Return a value in a form that JSON can hold."""
    if value is None or isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return str(value)


def _has_several_workers(strategy: Any) -> bool:
    return isinstance(strategy, StrategyHooks) and strategy.workers > 1


@replaces(
    trainer,
    "reduce_per_replica",
    why="With several workers, averages a step's logs over their first axis, which the logs do not"
    " have: `fit` and `evaluate` crash"
    " ([keras#20585](https://github.com/keras-team/keras/issues/20585)).",
    test="test_logs_are_averaged_over_an_axis_that_they_lack",
)
def _reduce_per_replica(
    original: Callable[..., Any], values: Any, strategy: Any, reduction: str
) -> Any:
    """Return a step's results without an average, as they already belong to the global batch."""
    if not uses_collectives(strategy):
        return original(values, strategy, reduction)
    return strategy.gather(values, axis=0)


@replaces(
    TensorFlowTrainer,
    "_make_function",
    why="With several workers, several steps per execution are a loop, in which TensorFlow's"
    " collectives have no keys.",
    test="test_collectives_take_their_keys_when_the_step_is_called",
)
def _make_function(original: Callable[..., Any], model: keras.Model, step: Any) -> Any:
    """Run the steps of an execution in a Python loop, and fix the keys of their collectives.

    All workers trace a step in the same order, as their batches have the same specification.
    """
    one_step = original(model, step)
    if not uses_collectives(model.distribute_strategy):
        return one_step

    def function(iterator: Any) -> Any:
        if not isinstance(iterator, tf.distribute.DistributedIterator):
            return one_step(iterator)
        watch = model.distribute_strategy.step_watch
        steps, outputs = model.steps_per_execution, None
        left = getattr(iterator, "_kdist_batches_left", steps)
        model.steps_per_execution = 1  # read when the step is traced
        try:
            for number in range(min(steps, left)):
                if number:  # `CallbackList` records the first step's start and the last step's end
                    watch.step_ended()
                    watch.step_began()
                with static_keys():
                    outputs = one_step(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            if outputs is None:
                raise
        finally:
            model.steps_per_execution = steps
        return outputs

    return function


@replaces(
    TFEpochIterator,
    "__init__",
    why="Workers with different batches wait for each other forever, or crash.",
    test="test_batches_of_workers_are_not_compared",
)
def _make_iterator(
    original: Callable[..., None],
    iterator: Any,
    distribute_strategy: Any = None,
    *args: Any,
    **options: Any,
) -> None:
    """Compare the batches of all workers before any worker waits for another worker."""
    if _has_several_workers(distribute_strategy) and describe_activity().startswith("fit"):
        _share_seed(distribute_strategy)
    original(iterator, distribute_strategy, *args, **options)
    if _has_several_workers(distribute_strategy):
        adapter = iterator.data_adapter
        if not is_read_by_all(adapter.get_tf_dataset()):
            record_different_data()
        distribute_strategy.compare_workers(
            describe_activity(),
            {
                **current_arguments(),
                "the number of batches": to_json_value(iterator.num_batches),
                "steps_per_epoch or steps": to_json_value(iterator.steps_per_epoch),
                "steps_per_execution": to_json_value(iterator.steps_per_execution),
                **describe_data(adapter, options),
                "the batches' shapes and types": str(iterator._distributed_dataset.element_spec),
            },
        )


def _share_seed(strategy: Any) -> None:
    """Copy the chief's seed state if a worker has a different seed or has drawn more numbers."""
    everyone = strategy.exchange(describe_activity(), seed_digest())
    if len(set(everyone)) > 1:
        chiefs = strategy.exchange(
            describe_activity(), seed_state() if strategy.is_chief else None
        )[0]
        if not strategy.is_chief:
            set_seed_state(chiefs)


def _track(name: str) -> Callable[..., Any]:
    def call(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
        hooks = hooks_of(model)
        if hooks is None:
            return original(model, *args, **options)
        compared = (
            compared_fit_arguments(original, model, *args, **options) if name == "fit" else {}
        )
        with hooks.step_watch.watch(name), track_call(name, compared):
            return original(model, *args, **options)

    return call


PATCHES = (
    _reduce_per_replica,
    _make_function,
    _make_iterator,
    *(
        Patch(
            owner=TensorFlowTrainer,
            name=name,
            replacement=_track(name),
            why="With several workers, does not say whether a batch is for `fit`, `evaluate` or"
            " `predict`, and does not say their arguments.",
            test="test_batches_of_workers_are_not_compared",
        )
        for name in ("fit", "evaluate", "predict")
    ),
)
