"""Compute expressions of a batch without a strategy and on three replicas, and compare them."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist.tools.check.comparison import gap_of

REPLICAS = 3
ROWS = 10
BATCH = 4  # the last has two rows, fewer than there are replicas
TOLERANCE = 1e-9
ROUNDED = 1e-6  # of what Keras computes in float32
RATE = 0.01


def calls_of(
    file: str, functions: dict[str, Any], guessed: Callable[[str, Any], list[str]]
) -> dict[str, list[str]]:
    """Expressions by the functions that they call first, from a file or guessed.

    Args:
        file: Has the calls of a function in a line, with `; ` between them.
        functions: All functions or classes, by their names.
        guessed: Returns the calls of one that is not in the file; none if it has no sample input.
    """
    lines = (pathlib.Path(__file__).parent / file).read_text().splitlines()
    written = {re.match(r"[\w.]+", line)[0]: line.split("; ") for line in lines}
    assert not set(written) - set(functions), "have no function"
    return {name: written.get(name) or guessed(name, one) for name, one in functions.items()}


def strategies() -> list[tf.distribute.Strategy]:
    """None, which is TensorFlow's default, and three replicas."""
    return [tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=REPLICAS)]


def run_steps(
    strategy: tf.distribute.Strategy, step: Callable[..., Any], data: Any, known: bool = False
) -> list[Any]:
    """What a step returns for each batch of arrays, whole.

    Args:
        strategy: The strategy.
        step: The step.
        data: The arrays.
        known: Whether the sizes of batches are known while tracing, one trace for each.
    """
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    take = (lambda batch: batch) if known else next
    run = tf.function(lambda given: strategy.run(step, args=(take(given),)), autograph=False)
    results = [run(next(iterator) if known else iterator) for _ in range(0, ROWS, BATCH)]
    if isinstance(strategy, kdist.MirroredStrategy):
        results = [strategy.gather(one, 0) for one in results]
    return tf.nest.map_structure(np.asarray, results)


class Expressions:
    """A step that computes expressions, and gradients by a number that scales their inputs.

    Args:
        expressions: The expressions.
        names: What they can name, beside the inputs.
    """

    def __init__(self, expressions: list[str], names: dict[str, Any]) -> None:
        self.names = names
        self.codes = {one: compile(one, one, "eval") for one in expressions}
        self.scales = {one: tf.Variable(1.0, dtype="float64") for one in expressions}
        self.errors: dict[str, str] = {}

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {one: self._result(one, inputs) for one in self.codes}

    def _result(self, expression: str, inputs: dict[str, Any]) -> list[Any]:
        scale = self.scales[expression]
        with tf.GradientTape() as tape:
            given = {
                name: value * tf.cast(scale, value.dtype) if value.dtype.is_floating else value
                for name, value in inputs.items()
                if name in expression
            }
            try:
                made = tensors_of(eval(self.codes[expression], self.names | given))
                loss = loss_of(made)
            except Exception as error:
                self.errors[expression] = f"{type(error).__name__}: {error}"
                return []
        try:
            gradient = None if loss is None else tape.gradient(loss, scale)
        except LookupError:  # the operation has none
            gradient = None
        except Exception as error:
            self.errors[expression] = f"gradient: {type(error).__name__}: {error}"
            return []
        if gradient is not None:
            scale.assign_sub(RATE * tf.clip_by_value(gradient, -1.0, 1.0))
            made.append(gradient)
        return made

    def state(self) -> dict[str, Any]:
        """What is compared after the last step."""
        return {}


def tensors_of(made: Any) -> list[Any]:
    """The tensors of a result."""
    return [tf.convert_to_tensor(one) for one in keras.tree.flatten(made)]


def loss_of(made: list[Any]) -> Any:
    """A number that depends on all floating values; `None` if there are none."""
    made = [tf.cast(one, "float64") for one in made if one.dtype in ("float64", "float32")]
    numbers = [tf.reduce_sum(tf.sin(one)) for one in made]
    return tf.add_n(numbers) if numbers else None


def tolerance_of(expression: str) -> float:
    """How far rounding may take its values."""
    return ROUNDED if "float32" in expression else TOLERANCE


def failures(
    make_step: Callable[[list[str]], Any],
    expressions: list[str],
    data: dict[str, Any],
    tolerance: Callable[[str], float] = tolerance_of,
    known: bool = False,
) -> list[str]:
    """What fails, or differs by more than rounding."""

    def outcome(strategy: tf.distribute.Strategy) -> tuple[dict[str, Any], dict[str, str]]:
        keras.backend.clear_session(free_memory=False)  # names begin anew
        keras.utils.set_random_seed(0)
        with strategy.scope():
            step = make_step(expressions)
        results = run_steps(strategy, step, data, known)
        found = {one: [r for some in results for r in some[one]] for one in results[0]}
        return found | step.state(), step.errors

    try:
        (expected, errors), (made, _) = map(outcome, strategies())
    except Exception as error:  # of which expression?
        if len(expressions) == 1:
            return [f"{expressions[0]}: {type(error).__name__}: {error}"]
        half = len(expressions) // 2
        parts = expressions[:half], expressions[half:]
        return [one for part in parts for one in failures(make_step, part, data, tolerance, known)]
    found = [f"{one}: without a strategy: {error}" for one, error in errors.items()]
    return found + differences(expected, made, tolerance)


def value_of(variable: keras.Variable) -> list[Any]:
    """The value of a variable, which all replicas have."""
    copies = [copy.numpy() for copy in getattr(variable.value, "values", [variable.value])]
    for copy in copies:
        np.testing.assert_array_equal(copy, copies[0])
    return copies[:1]


def differences(
    expected: dict[str, Any], made: dict[str, Any], tolerance: Callable[[str], float]
) -> list[str]:
    """What differs by more than rounding, by its name."""
    assert list(expected) == list(made)
    found = []
    for name in expected:
        pairs = zip(map(np.asarray, expected[name]), map(np.asarray, made[name]), strict=True)
        for place, (one, other) in enumerate(pairs):
            size = 1.0
            if one.dtype.kind in "fc":
                size = max(1.0, np.max(np.abs(one[np.isfinite(one)]), initial=0.0))
            gap = gap_of(one, other) if one.dtype == other.dtype else np.inf
            if not gap <= tolerance(name) * size:
                found.append(f"{name}: {place} is off by {gap:.1g}, {one.shape} {other.shape}")
    return found


def grouped(calls: dict[str, list[str]], most: int, apart: list[str] = ()) -> list[list[str]]:
    """Names whose expressions are computed in one step; some apart from the others."""
    found: list[list[str]] = []
    for is_apart in (False, True):
        size = most
        for name in (name for name in calls if (name in apart) == is_apart):
            if size >= most:
                found.append([])
                size = 0
            found[-1].append(name)
            size += len(calls[name])
    return found
