"""Train a case under a strategy, and compare two such runs."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import samples
import small_models
import tensorflow as tf

WEIGHTS_TOLERANCE = 1e-9  # absolute, in float64
METRICS_TOLERANCE = 1e-6  # Keras rounds some constants of its metrics to float32


def sgd():
    return keras.optimizers.SGD(0.1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """All that one run leaves behind."""

    weights: list[Any]
    optimizer: list[Any]
    predictions: list[Any]
    history: dict[str, Any]
    scores: dict[str, Any]
    copies: float  # the largest difference between two replicas' copies of a variable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A training; every function is called anew for each run."""

    model: Callable[[], keras.Model] = small_models.mlp
    optimizer: Callable[[], Any] = sgd
    compile: Callable[[], dict[str, Any]] = dict
    data: Callable[[int], samples.Data] = samples.classes
    weights: Callable[[int], Any] | None = None
    feed: Callable[[samples.Data, int], dict[str, Any]] = samples.cycled
    samples: int = 32
    batch: int = 8
    fit: Callable[[], dict[str, Any]] = dict
    procedure: Callable[["Run"], None] | None = None
    scored: bool = True  # evaluated after training
    predicted: bool = False  # asked for predictions at the end
    compiled_in_scope: bool = True
    fitted_in_scope: bool = False
    built: bool = False  # by `strategy.build`, where the strategy has it
    policy: str = "float64"
    tolerance: float = WEIGHTS_TOLERANCE


@dataclasses.dataclass(kw_only=True)
class Run:
    """A case under way; a procedure trains it and fills in the history and scores."""

    case: Case
    strategy: tf.distribute.Strategy
    model: keras.Model
    options: dict[str, Any]  # of `compile`, before those of the case
    history: dict[str, Any] = dataclasses.field(default_factory=dict)
    scores: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def data(self):
        data = self.case.data(self.case.samples)
        return data if self.case.weights is None else (*data, self.case.weights(self.case.samples))

    def feed(self):
        return self.case.feed(self.data, self.case.batch)

    @property
    def steps(self):
        """Steps of an epoch, where the data do not end by themselves."""
        if self.case.feed is samples.cycled:
            return -(-self.case.samples // self.case.batch)
        return self.case.fit().get("steps_per_epoch")

    def compile(self):
        options = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
        options |= self.options | self.case.compile()
        scope = self.strategy.scope() if self.case.compiled_in_scope else contextlib.nullcontext()
        with scope:
            self.model.compile(self.case.optimizer(), **options)

    def fit(self, **options):
        arguments = {"epochs": 2, "shuffle": False, "verbose": 0, "steps_per_epoch": self.steps}
        arguments |= {**self.case.fit(), **options}
        seen = self.model.fit(**self.feed(), **arguments).history
        self.history = {name: self.history.get(name, []) + seen[name] for name in seen}

    def evaluate(self):
        options = {"steps": self.steps, "verbose": 0, "return_dict": True}
        self.scores.update(self.model.evaluate(**self.feed(), **options))

    def predict(self):
        x, *_ = self.data
        outputs = self.model.predict(x, batch_size=self.case.batch, verbose=0)
        return keras.tree.flatten(outputs)


def train(case, strategy=None, **options):
    """Train under the strategy; without one, on the one replica of stock Keras.

    Options are those of `compile`, such as `jit_compile`, where the case has none of its own.
    """
    strategy = strategy or tf.distribute.get_strategy()
    with policy(case.policy):
        keras.utils.set_random_seed(0)
        if case.built and hasattr(strategy, "build"):
            model = strategy.build(case.model)
        else:
            with strategy.scope():
                model = case.model()
        run = Run(case=case, strategy=strategy, model=model, options=options)
        run.compile()
        with strategy.scope() if case.fitted_in_scope else contextlib.nullcontext():
            if case.procedure:
                case.procedure(run)
            else:
                run.fit()
                if case.scored:
                    run.evaluate()
            predictions = run.predict() if case.predicted else []
        state = run.model.variables + run.model.optimizer.variables
        return Outcome(
            weights=run.model.get_weights(),
            optimizer=[variable.numpy() for variable in run.model.optimizer.variables],
            predictions=predictions,
            history=run.history,
            scores=run.scores,
            copies=max(_spread(strategy, variable) for variable in state),
        )


@contextlib.contextmanager
def policy(name):
    """Keras in this dtype policy, and in float64 where that is it."""
    floatx, before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64" if name == "float64" else "float32")
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(before)


def _spread(strategy, variable):
    copies = [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
    return max(_gap(copies[0], copy) for copy in copies)


def _gap(expected, got):
    """The largest difference: infinite for other shapes, NaN where only one is finite."""
    expected, got = np.asarray(expected, "float64"), np.asarray(got, "float64")
    if expected.shape != got.shape:
        return float("inf")
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("nan")
    return float(np.max(np.abs(expected[finite] - got[finite]), initial=0))


def _largest_gap(expected, got):
    if isinstance(expected, dict):
        if expected.keys() != got.keys():
            return float("inf")
        expected, got = list(expected.values()), [got[name] for name in expected]
    if len(expected) != len(got):
        return float("inf")
    gaps = [_gap(a, b) for a, b in zip(expected, got, strict=True)]
    return float(np.max(gaps, initial=0))  # keeps a NaN, unlike max


def differences(expected, got):
    """Return the differences of two runs, quantity by quantity."""
    names = ("weights", "optimizer", "predictions", "history", "scores")
    gaps = {name: _largest_gap(getattr(expected, name), getattr(got, name)) for name in names}
    return {**gaps, "copies": got.copies}


def too_large(case, gaps):
    """Return the differences that are more than rounding."""
    metrics = max(METRICS_TOLERANCE, case.tolerance)
    limits = {"history": metrics, "scores": metrics}
    return {name: gap for name, gap in gaps.items() if not gap <= limits.get(name, case.tolerance)}


def assert_same(case, expected, got):
    """Fail if two runs differ by more than rounding."""
    gaps = differences(expected, got)
    assert not too_large(case, gaps), gaps
