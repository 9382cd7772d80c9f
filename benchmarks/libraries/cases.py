"""`Case`: a small model of a library, and how it is compared. The models are in `models/`."""

import contextlib
import gc
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

ROWS, BATCH_SIZE, EPOCHS = 10, 4, 2  # batches of 4, 4 and 2 rows
NOISE = {"float64": 1e-13, "float32": 1e-6}


@dataclass
class Training:
    """A compiled model and its data.

    Attributes:
        model: An object with `fit`, `evaluate` and `predict`.
        x: The first argument of `fit`: arrays of 10 rows, or batches.
        y: The second argument.
        fit: Other arguments of `fit`, such as callbacks.
        evaluates: Whether `evaluate` is called, too.
        predicts: Whether `predict` is called, too.
        batched: Whether `x` is batches already.
    """

    model: Any
    x: Any
    y: Any = None
    fit: dict[str, Any] = field(default_factory=dict)
    evaluates: bool = True
    predicts: bool = True
    batched: bool = False


@dataclass(frozen=True)
class Case:
    """A model of a library.

    Attributes:
        library: Name of the library on the Python Package Index.
        name: Name of the model.
        make: Makes the model, in the strategy's scope.
        dtype: Type of weights and results.
        built: Whether the model is made by `strategy.build` instead of in `strategy.scope()`.
        noise: A relative change of the initial weights that stands for rounding.
    """

    library: str
    name: str
    make: Callable[[], Training]
    dtype: str
    built: bool
    noise: float


CASES: list[Case] = []


def register_case(
    library: str,
    name: str,
    *,
    dtype: str = "float64",
    built: bool = False,
    noise: float | None = None,
) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    """Add a function that makes a model to the cases."""

    def add(make: Callable[[], Training]) -> Callable[[], Training]:
        CASES.append(Case(library, name, make, dtype, built, noise or NOISE[dtype]))
        return make

    return add


@dataclass
class Result:
    """The results of a training, and the times of its steps.

    Attributes:
        arrays: Weights, predictions, history and scores, by name.
        first_step: Seconds from the call of `fit` to the end of its first step.
        second_epoch_step: The median of the second epoch's steps, in seconds.
        warned: Messages of kdist, and Python's warnings.
    """

    arrays: dict[str, Any]
    first_step: float
    second_epoch_step: float
    warned: list[str]


def train(case: Case, strategy: Any = None, noise: float = 0.0) -> Result:
    """Train a case's model, in plain Keras without a strategy.

    Args:
        case: The case.
        strategy: kdist's strategy.
        noise: The relative change of initial weights.
    """
    keras.backend.clear_session()
    gc.collect()
    keras.config.set_floatx(case.dtype)
    keras.config.set_dtype_policy(case.dtype)
    keras.utils.set_random_seed(1)
    with _collect_warnings() as warned:
        training = _make_training(case, strategy)
        model = training.model
        keras.utils.set_random_seed(2)
        watch = _Watch(model, noise)
        options = {} if training.batched else {"batch_size": BATCH_SIZE}
        callbacks = [watch, *training.fit.pop("callbacks", [])]
        given = [data for data in (training.x, training.y) if data is not None]
        begin = time.perf_counter()
        history = model.fit(
            *given,
            **options,
            **training.fit,
            epochs=EPOCHS,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        ).history
        arrays = {f"weight {weight.path}": weight.numpy() for weight in _list_weights(model)}
        arrays |= {f"history {name}": values for name, values in history.items()}
        if training.evaluates:
            scores = model.evaluate(*given, **options, verbose=0, return_dict=True)
            arrays |= {f"evaluate {name}": value for name, value in scores.items()}
        if training.predicts:
            outputs = keras.tree.flatten(model.predict(training.x, **options, verbose=0))
            arrays |= {f"prediction {place}": output for place, output in enumerate(outputs)}
    return Result(
        arrays, watch.ends[0] - begin, statistics.median(watch.seconds[1]), sorted(set(warned))
    )


def find_difference(expected: Result, received: Result) -> tuple[float, str]:
    """Return the largest relative difference, and the name of its array.

    Names of weights are not compared, as Keras numbers layers anew.
    """
    if list(map(_strip_weight_name, expected.arrays)) != list(
        map(_strip_weight_name, received.arrays)
    ):
        return float("inf"), f"{list(expected.arrays)} became {list(received.arrays)}"
    worst = 0.0, ""
    pairs = zip(expected.arrays.items(), received.arrays.values(), strict=True)
    for (name, a), b in pairs:
        gap = _measure_gap(np.asarray(a), np.asarray(b))
        if not gap <= worst[0]:
            worst = gap, name
    return worst


def _strip_weight_name(name: str) -> str:
    return "weight" if name.startswith("weight ") else name


def _measure_gap(expected: np.ndarray, received: np.ndarray) -> float:
    if expected.shape != received.shape:
        return float("inf")
    a, b = expected.astype("float64"), received.astype("float64")
    if not a.size or (np.isfinite(a) != np.isfinite(b)).any():
        return float("inf") if a.size else 0.0
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-2))


def _list_weights(model: Any) -> list[Any]:
    return [weight for weight in model.weights if weight.dtype != "string"]


def _make_training(case: Case, strategy: Any) -> Training:
    if strategy is None:
        return case.make()
    if not case.built:
        with strategy.scope():
            return case.make()
    made: list[Training] = []

    def build() -> Any:
        made.append(case.make())
        return made[0].model

    strategy.build(build)
    return made[0]


class _Watch(keras.callbacks.Callback):
    """Changes the initial weights by noise, and takes the time of the steps."""

    def __init__(self, model: Any, noise: float) -> None:
        super().__init__()
        self._trained, self._noise = model, noise
        self.ends: list[float] = []
        self.seconds: list[list[float]] = []

    def on_train_begin(self, *_: object, **__: object) -> None:
        if self._noise:
            random = np.random.default_rng(0)
            for weight in _list_weights(self._trained):
                value = weight.numpy()
                if value.dtype.kind == "f":
                    change = 1 + self._noise * random.normal(size=value.shape)
                    weight.assign((value * change).astype(value.dtype))

    def on_epoch_begin(self, *_: object, **__: object) -> None:
        self.seconds.append([])

    def on_train_batch_begin(self, *_: object, **__: object) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.perf_counter())
        self.seconds[-1].append(self.ends[-1] - self._began)


class _Messages(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


@contextlib.contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect kdist's messages and Python's warnings."""
    messages: list[str] = []
    handler = _Messages(messages)
    logger = logging.getLogger("kdist")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield messages
    finally:
        logger.removeHandler(handler)
        messages += [str(warning.message) for warning in caught]
