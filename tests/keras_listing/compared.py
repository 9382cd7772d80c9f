"""Compute expressions of a batch without a strategy and on three replicas, and compare them."""

import pathlib
import re

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist.tools.check.comparison import largest_gap

REPLICAS = 3
ROWS = 10
BATCH = 4  # the last has two rows, fewer than there are replicas
TOLERANCE = 1e-9
ROUNDED = 1e-6  # of what Keras computes in float32
RATE = 0.01


def calls_of(file, functions, guessed):
    """Return the expressions that call each function: a line of the file, with `; `, or guessed."""
    lines = (pathlib.Path(__file__).parent / file).read_text().splitlines()
    written = {re.match(r"[\w.]+", line)[0]: line.split("; ") for line in lines}
    assert not set(written) - set(functions), "have no function"
    return {
        name: written.get(name) or guessed(name, function) for name, function in functions.items()
    }


def strategies(and_divided=False):
    """Return TensorFlow's default strategy, and three replicas; also with divided weights."""
    options = [False, True] if and_divided else [False]
    return [
        tf.distribute.get_strategy(),
        *(kdist.MirroredStrategy(replicas=REPLICAS, shard_weights=each) for each in options),
    ]


def run_steps(strategy, step, data, known=False):
    """Return the results of a step for each batch; with `known`, sizes are known while tracing."""
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    take = (lambda batch: batch) if known else next
    run = tf.function(lambda given: strategy.run(step, args=(take(given),)), autograph=False)
    results = [run(next(iterator) if known else iterator) for _ in range(0, ROWS, BATCH)]
    if isinstance(strategy, kdist.MirroredStrategy):
        results = [strategy.gather(result, 0) for result in results]
    return tf.nest.map_structure(np.asarray, results)


class Expressions:
    """A step that computes expressions of inputs and names, and gradients by a scale of inputs."""

    def __init__(self, expressions, names):
        self.names = names
        self.codes = {code: compile(code, code, "eval") for code in expressions}
        self.scales = {code: tf.Variable(1.0, dtype="float64") for code in expressions}
        self.errors = {}

    def __call__(self, inputs):
        return {code: self._result(code, inputs) for code in self.codes}

    def _result(self, expression, inputs):
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

    def state(self):
        """Return the values that are compared after the last step."""
        return {}


def tensors_of(made):
    """The tensors of a result."""
    return [tf.convert_to_tensor(value) for value in keras.tree.flatten(made)]


def loss_of(made):
    """A number that depends on all floating values; `None` if there are none."""
    made = [tf.cast(tensor, "float64") for tensor in made if tensor.dtype in ("float64", "float32")]
    numbers = [tf.reduce_sum(tf.sin(one)) for one in made]
    return tf.add_n(numbers) if numbers else None


def tolerance_of(expression):
    """How far rounding may take its values."""
    return ROUNDED if "float32" in expression else TOLERANCE


def failures(make_step, expressions, data, tolerance=tolerance_of, known=False, and_divided=False):
    """Return messages of expressions that fail, or differ by more than rounding.

    With `and_divided`, also with divided weights.
    """

    def outcome(strategy):
        keras.backend.clear_session(free_memory=False)  # names begin anew
        keras.utils.set_random_seed(0)
        with strategy.scope():
            step = make_step(expressions)
        results = run_steps(strategy, step, data, known)
        found = {one: [r for some in results for r in some[one]] for one in results[0]}
        return found | step.state(), step.errors

    try:
        (expected, errors), *outcomes = map(outcome, strategies(and_divided))
    except Exception as error:  # of which expression?
        if len(expressions) == 1:
            return [f"{expressions[0]}: {type(error).__name__}: {error}"]
        half = len(expressions) // 2
        options = data, tolerance, known, and_divided
        parts = expressions[:half], expressions[half:]
        return [message for part in parts for message in failures(make_step, part, *options)]
    found = [f"{one}: without a strategy: {error}" for one, error in errors.items()]
    return found + [
        each for values, _ in outcomes for each in differences(expected, values, tolerance)
    ]


def value_of(variable):
    """The value of a variable, which all replicas have."""
    copies = [copy.numpy() for copy in getattr(variable.value, "values", [variable.value])]
    for copy in copies:
        np.testing.assert_array_equal(copy, copies[0])
    return copies[:1]


def differences(expected, made, tolerance):
    """Return messages of values that differ by more than rounding."""
    assert list(expected) == list(made)
    found = []
    for name in expected:
        pairs = zip(map(np.asarray, expected[name]), map(np.asarray, made[name]), strict=True)
        for place, (one, other) in enumerate(pairs):
            size = 1.0
            if one.dtype.kind in "fc":
                size = max(1.0, np.max(np.abs(one[np.isfinite(one)]), initial=0.0))
            gap = largest_gap(one, other) if one.dtype == other.dtype else np.inf
            if not gap <= tolerance(name) * size:
                found.append(f"{name}: {place} is off by {gap:.1g}, {one.shape} {other.shape}")
    return found


def grouped(calls, most, apart=()):
    """Names whose expressions are computed in one step; some apart from the others."""
    found = []
    for is_apart in (False, True):
        size = most
        for name in (name for name in calls if (name in apart) == is_apart):
            if size >= most:
                found.append([])
                size = 0
            found[-1].append(name)
            size += len(calls[name])
    return found
