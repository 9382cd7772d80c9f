"""Runs random programs divided over replicas, and whole: several of them in one traced step."""

import contextlib
import itertools
from dataclasses import dataclass
from unittest import mock

import kdist
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from kdist.spmd import divided_variables, partition
from kdist.spmd.rules import indexing
from random_programs import BATCHES, INPUTS, VARIABLES, programs
from rule_harness import whole_array
from tensorflow.python.distribute import values

STATE, WEIGHTS = "divided as state", "divided as weights"
_NOISE = 1e-13
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Rows:
    """How many rows each replica has of the batch, and of the other batch."""

    batch: tuple
    other: tuple

    def of(self, name):
        """Return the numbers of rows of an input."""
        return self.other if name == "other" else self.batch


def as_divided(total, replicas):
    """Return numbers of rows as TensorFlow divides a batch."""
    each = -(-total // replicas)
    return tuple(max(min(each, total - place * each), 0) for place in range(replicas))


def constant(*shape):
    """Return the same numbers for the same shape."""
    return tf.constant(np.random.default_rng([*shape]).normal(size=shape) / 2)


def gradients_of(tape, value, sources):
    """Return dense gradients; zeros of what has none."""
    found = tape.gradient(value, sources, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in found]


def gradient(fn, value):
    """Return a gradient inside a program."""
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = fn(value)
    return tape.gradient(result, value, unconnected_gradients="zero")


def changes(kind, variable, value, rows, other):
    """Change a variable in a body, and return what the body makes of rows and of another one."""

    def body(rows):
        variable.assign(0.5 * variable + tf.tanh(value))
        return tf.sin(rows + tf.reduce_sum(tf.tanh(variable)) - tf.reduce_sum(tf.sin(other)))

    def condition(rows):
        return tf.cond(tf.reduce_sum(tf.tanh(value)) > 0.1, lambda: body(rows), lambda: -rows)

    def loop(body, rows):
        start = (0, rows)
        return tf.while_loop(lambda i, _: i < 3, lambda i, one: (i + 1, body(one)), start)[1]

    if kind == "condition":
        return condition(rows)
    if kind == "loop":
        return loop(body, rows)
    if kind == "several calls":
        function = tf.function(condition, autograph=False)
        return loop(function, function(rows))
    return tf.function(body, autograph=False, jit_compile=kind == "compiled")(rows)


def _with_noise(value):
    """Let a value have another rounding error."""
    noise = tf.random.stateless_uniform(tf.shape(value), [1, 2], -1, 1, tf.float64)
    return value * (1 + _NOISE * noise)


def _function(program, rounded):
    names = {
        "tf": tf,
        "rounded": rounded,
        "constant": constant,
        "gradient": gradient,
        "gradients_of": gradients_of,
        "changes": changes,
    }
    exec(program.source, names)
    return names["program"]


def _initial():
    rng = np.random.default_rng(3)
    return [rng.normal(size=INPUTS[name][0]) for name in VARIABLES]


class Runs:
    """Programs that are traced as one step, whole and divided.

    Args:
        programs: The programs.
        replicas: How many replicas the divided one has.
        devices: How many devices they share as shards; `None` for one each, without shards;
            `STATE` for the same, with variables divided as an optimizer's state, and `WEIGHTS` with
            variables divided as weights.
        rows: If given, the numbers of rows are known while the step is traced.
    """

    def __init__(self, programs, replicas, devices=None, rows=None):
        self.programs = programs
        divided, devices = (devices, None) if devices in (STATE, WEIGHTS) else (None, devices)
        self.strategy = kdist.MirroredStrategy(
            replicas=devices or replicas,
            shards=None if devices is None else replicas,
            shard_optimizer=divided == STATE,
            shard_weights=divided == WEIGHTS,
        )
        self.rows, self.noisy, self.variables = rows, None, []
        self.whole = self._whole(tf.identity)
        with self.strategy.scope(), contextlib.ExitStack() as beside:
            if divided == STATE:  # as an optimizer makes it
                first = tf.Variable(0.0)
                beside.enter_context(self.strategy.extended.colocate_vars_with(first))
            if divided:
                beside.enter_context(
                    mock.patch.multiple(
                        divided_variables, LEAST_ELEMENTS=2, _LARGEST_UNEVENNESS=2.0
                    )
                )
            step = self._step(tf.identity)

        def run(*batches):
            args = [values.PerReplica(tuple(parts)) for parts in batches]
            return self.strategy.run(step, args=args)

        specs = [
            [self.spec(name, rows and rows.of(name)[place]) for place in range(replicas)]
            for name in BATCHES
        ]
        with contextlib.ExitStack() as beside:
            beside.enter_context(mock.patch.object(partition, "WEIGHT_BYTES", 100))
            if divided == WEIGHTS:  # Rows are looked up in parts, although the tables are small.
                fewer = mock.patch.object(indexing, "_has_fewer_elements", return_value=True)
                beside.enter_context(fewer)
            self.divided = tf.function(run, autograph=False).get_concrete_function(*specs)

    def _whole(self, rounded):
        specs = [self.spec(name, self.rows and sum(self.rows.of(name))) for name in BATCHES]
        return tf.function(self._step(rounded), autograph=False).get_concrete_function(*specs)

    def _step(self, rounded):
        functions = [_function(program, rounded) for program in self.programs]
        made = [[tf.Variable(value) for value in _initial()] for _ in self.programs]

        def step(*batches):
            return [fn(*batches, *own) for fn, own in zip(functions, made, strict=True)]

        self.variables.append(made)
        return step

    @staticmethod
    def spec(name, rows):
        """Return what is known of an input with this many rows."""
        (_, *rest), kind = INPUTS[name]
        return tf.TensorSpec([rows, *rest], "int32" if kind == "int" else "float64")

    def failures(self, rows):
        """Return, for each program that is wrong with these numbers of rows, what differs.

        Also returns how many numbers were compared, and how many of those that differ could not be,
        as rounding alone changes them.
        """
        rng = np.random.default_rng(5)
        parts = {name: [_rows(rng, name, n) for n in rows.of(name)] for name in BATCHES}
        batches = [tf.concat(parts[name], 0) for name in BATCHES]
        self._reset()
        expected = self.whole(*batches)
        found = self.divided(*([tf.constant(part) for part in parts[name]] for name in BATCHES))
        failures, compared, unclear = self._unequal_copies(rows), 0, 0
        noisy = None
        for at, program in enumerate(self.programs):
            names = [*program.results, "loss", *(f"gradient of {n}" for n in _SOURCES), *VARIABLES]
            for place, name in enumerate(names):
                pair = whole_array(expected[at][place]), whole_array(found[at][place])
                compared += pair[0].size
                wrong, _ = _differs(*pair, pair[0])
                if wrong:
                    noisy = noisy or self._with_noise(batches)
                    wrong, clear = _differs(*pair, whole_array(noisy[at][place]))
                    unclear += int((~clear).sum())
                if wrong:
                    failures.append((program, f"{name} with {rows}: {wrong}"))
                    break
        return failures, compared, unclear

    def _with_noise(self, batches):
        """Run the whole programs with other rounding errors."""
        self.noisy = self.noisy or self._whole(_with_noise)
        self._reset()
        return self.noisy(*batches)

    def _reset(self):
        for own in itertools.chain(*self.variables):
            for variable, value in zip(own, _initial(), strict=True):
                variable.assign(value)

    def _unequal_copies(self, rows):
        """Return which programs have left other values of a variable on each replica."""
        return [
            (program, f"copies of {name} differ with {rows}")
            for program, own in zip(self.programs, self.variables[1], strict=True)
            for name, variable in zip(VARIABLES, own, strict=True)
            if not isinstance(variable, divided_variables.DividedVariable)
            if len({copy.numpy().tobytes() for copy in variable.values}) > 1
        ]


_SOURCES = ("x", "image", "other", *VARIABLES)


def row_numbers(replicas):
    """Return a strategy of Hypothesis that draws how many rows each replica has."""
    any_numbers = st.lists(st.integers(0, 4), min_size=replicas, max_size=replicas).map(tuple)
    divided = st.integers(0, 9).map(lambda total: as_divided(total, replicas))
    return st.builds(Rows, divided | any_numbers, divided | any_numbers)


@st.composite
def cases(draw, count=6):
    """Draw programs, numbers of replicas and devices, of rows, and whether these are known."""
    replicas = draw(st.sampled_from([2, 3, 4]))
    devices = draw(st.sampled_from([None, STATE, WEIGHTS, 1, 2 if replicas == 4 else 1]))
    is_static = draw(st.sampled_from([False, False, False, True]))
    chosen = draw(st.lists(programs(), min_size=1, max_size=count))
    numbers = draw(st.lists(row_numbers(replicas), min_size=1, max_size=1 if is_static else 3))
    return chosen, (replicas, devices), numbers, is_static


def failures_of(chosen, replicas, numbers, is_static, counts):
    """Return what is wrong with programs, each alone if together they do not run.

    Args:
        chosen: The programs.
        replicas: How many replicas there are, and how many devices they share, if they do.
        numbers: Numbers of rows, each tried.
        is_static: Whether the first of them is known while the step is traced.
        counts: A counter of `programs`; of their `runs`, each with numbers of rows; of runs that
            are `invalid`, as the program does not run whole; of results that were `compared`; and
            of those that rounding alone changes (`unclear`).
    """
    counts["programs"] += len(chosen)
    counts["runs"] += len(chosen) * len(numbers)
    rows = numbers[0] if is_static else None
    try:
        return _failures(chosen, replicas, numbers, rows, counts)
    except Exception:  # found out program by program
        rest = (replicas, numbers, rows, counts)
        return [f for program in chosen for f in _failures_alone(program, *rest)]


def _failures(chosen, replicas, numbers, rows, counts):
    runs = Runs(chosen, *replicas, rows)
    found = []
    for each in numbers:
        failures, compared, unclear = runs.failures(each)
        counts["compared"] += compared
        counts["unclear"] += unclear
        found += failures
    return found


def _failures_alone(program, replicas, numbers, rows, counts):
    found = []
    for each in numbers:
        try:
            found += _failures([program], replicas, [each], rows, counts)
        except Exception as error:
            if _runs_whole(program, each, rows):
                found.append((program, f"{each}: {type(error).__name__}: {error}"))
            else:
                counts["invalid"] += 1
    return found


def _runs_whole(program, numbers, rows):
    variables = [tf.Variable(value) for value in _initial()]
    fn = _function(program, tf.identity)
    specs = [Runs.spec(name, rows and sum(rows.of(name))) for name in BATCHES]
    rng = np.random.default_rng(5)
    batches = [tf.constant(_rows(rng, name, sum(numbers.of(name)))) for name in BATCHES]
    try:
        step = tf.function(lambda *args: fn(*args, *variables), autograph=False)
        step.get_concrete_function(*specs)(*batches)
    except Exception:  # such as sizes that cannot be computed without any row
        return False
    return True


def _rows(rng, name, count):
    (_, *rest), kind = INPUTS[name]
    if kind == "int":
        return rng.integers(0, 4, [count, *rest]).astype("int32")
    return rng.normal(size=[count, *rest])


def _differs(expected, found, noisy):
    """Return how results differ, if they do, and which numbers rounding alone does not change."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} of {found.shape}, not {expected.dtype} of {expected.shape}", _ALL
    if noisy.shape != expected.shape:
        return None, np.zeros(expected.shape, bool)
    if expected.dtype.kind != "f":
        clear = expected == noisy
        wrong = (found != expected) & clear
    else:
        spread = np.abs(expected - noisy)
        scale = np.maximum(np.abs(expected), 1)
        clear = (spread < 1e-6 * scale) | (
            (expected == noisy) | np.isnan(expected) & np.isnan(noisy)
        )
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= _TOLERANCE * scale + 1e3 * spread
        wrong = clear & ~same & ~near
    if not wrong.any():
        return None, clear
    place = tuple(np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size}, such as {found[place]}, not {expected[place]}", clear


_ALL = np.ones(1, bool)
