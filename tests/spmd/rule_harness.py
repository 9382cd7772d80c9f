"""Run operations divided over replicas, and whole: many of them in one traced step."""

import contextlib
import inspect
import itertools
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

import kdist
import numpy as np
import tensorflow as tf
from kdist.spmd import partition
from kdist.spmd.functions import kernel_name
from kdist.spmd.placements import REPLICATE, ListOf, Partial, Shard
from kdist.spmd.plan import GraphPlan
from tensorflow.python.distribute import values
from tensorflow.python.framework import op_def_registry

B = "batch"
REPLICAS = 3
# How many rows of the first batch each replica has.
COUNTS = [(3, 2, 4), (1, 0, 0), (0, 0, 2), (2, 0, 1), (0, 3, 1), (0, 0, 0)]
STATIC = (3, 2, 4)
_WIDTH = 400  # numbers in a row of an input
_SLOTS = 3  # inputs that differ
_MOST = 80  # cases of one step

# Parts of a row's operations that are divided.
ALL = "all"
SOME = "those it tests, in some of its cases"
NONE = "none"


@dataclass(frozen=True)
class Input:
    """An input of an operation.

    Args:
        shape: Its shape, with `B` for the axis of the batch; without it every replica has the
            whole tensor.
        dtype: Floats are normal, integers are from 0 to 3.
        partial: Whether it is a sum over the batch of tensors of this shape.
        twin: Whether it comes from another input of the step, with the same numbers of rows.
    """

    shape: tuple
    dtype: str = "float64"
    partial: bool = False
    twin: bool = False

    @property
    def has_rows(self):
        """Whether the batch is one of its axes."""
        return B in self.shape


def partial(*shape, dtype="float64"):
    """Return an input of which every replica has a part of the sum."""
    return Input(shape, dtype, partial=True)


def ints(*shape, **options):
    """Return an input of integers from 0 to 3."""
    return Input(shape, "int32", **options)


def bools(*shape):
    """Return an input of truth values."""
    return Input(shape, "bool")


def twin(*shape):
    """Return an input from another batch, with the same numbers of rows."""
    return Input(shape, twin=True)


@dataclass(eq=False)
class Row:
    """Operations that are tested.

    Args:
        types: The rules that it tests, by the types of operations, all of which `fn` has to make.
        fn: Makes results from the inputs, and from a variable behind them if there is one.
        inputs: Several lists of inputs, each tried. A tuple stands for `Input` of this shape.
        divided: What the rules have to divide: `ALL` that `fn` makes, `SOME`, or `NONE`.
        batches: Whether two concatenated batches are tried too.
        replicated: Whether inputs of the first list are tried whole, in turn, beside others that
            are divided.
        mixed: Whether all has to be divided with such inputs too.
        empty: Whether `fn` works without any row.
        static: Whether it is tried with known numbers of rows too.
        gradients: Whether gradients of the results are computed too, but of concatenated batches.
        whole_in_graph: Whether the whole computation is traced, too, as `fn` does other things
            without a graph. Without it, operations run one by one, which is sooner.
        variable: The initial value of a variable.
        tolerance: How far results may differ, relatively and absolutely.
    """

    types: str
    fn: object
    inputs: list
    divided: str = ALL
    batches: bool = True
    replicated: bool = True
    mixed: bool = True
    empty: bool = True
    static: bool = True
    gradients: bool = False
    whole_in_graph: bool = False
    variable: object = None
    tolerance: float = 1e-12

    def __post_init__(self):
        self.inputs = [
            [spec if isinstance(spec, Input) else Input(spec) for spec in inputs]
            for inputs in self.inputs
        ]


class Table(list):
    """Rows of one family."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def add(self, types, fn, *inputs, **options):
        """Add a row; arguments as for `Row`, with the table's options if there are no others."""
        self.append(Row(types, fn, list(inputs), **(self.options | options)))


def types_of(rows):
    """Return all types of operations that rows test."""
    return {kind for row in rows for kind in row.types.split()}


def raw(kind, **attributes):
    """Return a function that makes an operation of its inputs, in their order."""
    function = getattr(tf.raw_ops, kind)
    count = len(op_def_registry.get(kind).input_arg)
    names = list(inspect.signature(function).parameters)[:count]

    def make(*inputs):
        return function(**dict(zip(names, inputs, strict=True)), **attributes)

    return make


def positive(x):
    """Return values from 0.5 on."""
    return tf.abs(x) + 0.5


def unit(x):
    """Return values between -1 and 1."""
    return 0.9 * tf.tanh(x)


def half(x):
    """Return values between 0 and 1."""
    return 0.5 + 0.45 * tf.tanh(x)


def as_complex(x):
    """Return complex values."""
    return tf.complex(x, x * 0.5 + 1)


def of(domain, kind, **attributes):
    """Return a function that makes an operation of inputs in a domain."""
    make = raw(kind, **attributes)
    return lambda *inputs: make(*map(domain, inputs))


def with_constants(kind, *rest, **attributes):
    """Return a function that makes an operation of one input, and constants behind it."""
    make = raw(kind, **attributes)
    return lambda x: make(x, *map(tf.convert_to_tensor, rest))


@dataclass(eq=False)
class Case:
    """A row with one choice of inputs."""

    row: Row
    scope: str
    inputs: list
    kind: str
    whole: int | None = None

    def __str__(self):
        shapes = ", ".join(str(spec.shape) for spec in self.inputs)
        return f"{self.row.types} of {shapes}, {self.kind}"


_numbers = itertools.count()


def _cases_of(row, is_static):
    """Return the cases of a row: rows of one batch, of two, and inputs that are whole."""
    found = []

    def add(inputs, kind, whole=None):
        found.append(Case(row, f"case{next(_numbers)}x", inputs, kind, whole))

    if is_static:
        add(row.inputs[0], "rows")
        return found
    for number, inputs in enumerate(row.inputs):
        add(inputs, "rows")
        if row.batches and number == 0:
            add(inputs, "batches")
        places = [i for i, spec in enumerate(inputs) if spec.has_rows]
        if row.replicated and number < 1 and len(places) > 1:
            for place in places:
                add(inputs, f"input {place} whole", place)
    return found


class _Inputs:
    """Makes inputs of the operations from those of a step."""

    def __init__(self, first, second, twins):
        self.batches = {"first": first, "second": second, "twin": twins}
        self.memo = {}

    def of(self, case):
        """Return the inputs of a case."""
        kind = case.kind if case.kind == "batches" else "rows"
        return [self._get(s, i, kind, i == case.whole) for i, s in enumerate(case.inputs)]

    def _get(self, *key):
        if key not in self.memo:
            with tf.name_scope("make"):
                self.memo[key] = self._make(*key)
        return self.memo[key]

    def _make(self, spec, slot, kind, is_whole):
        rest = [size for size in spec.shape if size != B]
        if not spec.has_rows and not spec.partial:
            made = np.random.default_rng([slot, *rest]).normal(size=rest)
            return _cast(tf.constant(made), spec.dtype)
        names = ["twin" if spec.twin else "first"]
        if kind == "batches":
            names.append("second")
        size, begin = int(np.prod(rest)), (slot % _SLOTS) * _WIDTH
        parts = [self.batches[name][:, begin : begin + size] for name in names]
        made = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
        made = _cast(tf.reshape(made, [-1, *rest]), spec.dtype)
        if spec.partial:
            return tf.reduce_sum(made, 0)
        if is_whole:
            made = tf.reverse(made, [0])
        axis = spec.shape.index(B)
        if axis:
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(rest) + 1)]
            made = tf.transpose(made, order)
        return made


def _cast(x, dtype):
    if dtype == "bool":
        return x > 0
    if tf.as_dtype(dtype).is_integer:
        return tf.cast(tf.floor(tf.abs(x) * 3) % 4, dtype)
    return tf.cast(x, dtype)


def _results(case, given, extra):
    row = case.row
    if not row.gradients or case.kind == "batches":
        return tf.nest.flatten(row.fn(*given, *extra))
    sources = [tensor for tensor in [*given, *extra] if tensor.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        made = tf.nest.flatten(row.fn(*given, *extra))
        loss = tf.add_n(
            [tf.reduce_sum(tf.sin(tensor)) for tensor in made if tensor.dtype.is_floating]
        )
    found = tape.gradient(loss, sources)
    return [*made, *(tf.convert_to_tensor(gradient) for gradient in found if gradient is not None)]


@contextlib.contextmanager
def recorded_plans():
    """Return a list that grows by the plan of each traced step."""
    plans = []

    def plan(**options):
        plans.append(GraphPlan(**options))
        return plans[-1]

    with mock.patch.object(partition, "GraphPlan", plan):
        yield plans


class Program:
    """The divided and the whole step of some rows. It runs while others are traced.

    Args:
        rows: What is computed in one step.
        counts: How many rows the replicas have, each tried.
        is_static: Whether these numbers, which are only one choice, are known while tracing.
    """

    _runner = ThreadPoolExecutor(1)

    def __init__(self, rows, counts, is_static):
        self.rows, self.counts, self.is_static = rows, counts, is_static
        self.cases = [case for row in rows for case in _cases_of(row, is_static)]
        self.strategy = kdist.MirroredStrategy(replicas=REPLICAS)
        initial = {row: row.variable for row in rows if row.variable is not None}
        with self.strategy.scope():
            copied = {row: tf.Variable(value) for row, value in initial.items()}
        self.variables = (copied, {row: tf.Variable(value) for row, value in initial.items()})
        divided, self.whole = (self._step(variables) for variables in self.variables)
        if any(row.whole_in_graph for row in rows):
            self.whole = self._trace_whole(self.whole)

        def run(*batches):
            args = [values.PerReplica(tuple(parts)) for parts in batches]
            return self.strategy.run(divided, args=args)

        specs = [[self._spec(n) for n in _numbers_of(counts[0], b)] for b in range(3)]
        with recorded_plans() as plans:
            self.run = tf.function(run, autograph=False).get_concrete_function(*specs)
        self.items = defaultdict(list)  # the planned operations of each case
        for item in plans[-1].operations:
            scope = re.search(r"case\d+x", item.op.name)
            self.items[scope and scope[0]].append(item)
        self.computed = self._runner.submit(lambda: [self._compute(n) for n in counts])

    def _step(self, variables):
        """Return a step that makes the results of all cases."""

        def step(*batches):
            inputs = _Inputs(*batches)
            results = []
            for case in self.cases:
                given = inputs.of(case)
                extra = [variables[case.row]] if case.row in variables else []
                with tf.name_scope(case.scope):
                    results.append(_results(case, given, extra))
            return results

        return step

    def _trace_whole(self, step):
        specs = [self._spec(sum(_numbers_of(self.counts[0], batch))) for batch in range(3)]
        return tf.function(step, autograph=False).get_concrete_function(*specs)

    def _spec(self, rows):
        return tf.TensorSpec([rows if self.is_static else None, _WIDTH * _SLOTS], "float64")

    def _compute(self, counts):
        """Return, for each case, what is expected and what the replicas computed."""
        rng = np.random.default_rng(7)
        batches = [
            [tf.constant(rng.normal(size=(n, _WIDTH * _SLOTS))) for n in _numbers_of(counts, b)]
            for b in range(3)
        ]
        expected = self.whole(*(tf.concat(parts, 0) for parts in batches))
        return expected, self.run(*batches)

    def failures(self):
        """Return what is wrong with which case."""
        found = self.wrong_values()
        for row in self.rows:
            found += self._undivided(row)
        return found

    def wrong_values(self):
        """Return which results of which case differ from those of the whole batch."""
        found = []
        for counts, (expected, made) in zip(self.counts, self.computed.result(), strict=True):
            for case, *pair in zip(self.cases, expected, made, strict=True):
                for number, (whole, divided) in enumerate(zip(*pair, strict=True)):
                    arrays = whole_array(whole), whole_array(divided)
                    error = _difference(*arrays, case.row.tolerance)
                    if error:
                        found.append(f"{case}: result {number} with {counts} rows: {error}")
        return found

    def _undivided(self, row):
        """Return what of a row the rules did not divide as they should."""
        made, divided, found = set(), set(), []
        for case in self.cases:
            if case.row is not row:
                continue
            for item in self.items[case.scope]:
                kinds = {_rule_of(item.op), *_in_body(item.op)}
                made |= kinds
                waits = item.is_whole or (item.op.type in row.types.split() and _reduces(item))
                if not waits and (_is_divided(item) or item.op.type in _OF_SIZES):
                    divided |= kinds
                if waits and row.divided == ALL and (row.mixed or case.whole is None):
                    found.append(f"{case}: {item.op.name} of {item.placements} is whole")
        if not self.is_static:  # there, what is known is a constant
            missing = set(row.types.split()) - (made if row.divided == NONE else divided)
            if missing:
                found.append(f"{row.types} of {row.inputs}: {missing} are not made, or not divided")
        return found


def whole_array(value):
    """Return a result as an array; rows of replicas follow each other."""
    if isinstance(value, values.DistributedValues):
        return np.concatenate([part.numpy() for part in value.values])
    return np.asarray(value.numpy())


def _difference(expected, made, tolerance):
    """Return how results differ; nothing if they do not."""
    try:
        assert made.dtype == expected.dtype
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(made, expected, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(made, expected)
    except AssertionError as error:
        return error
    return None


def _numbers_of(counts, batch):
    """Return the numbers of rows of a batch: those of the second one are others."""
    return (counts[2], counts[0], counts[1]) if batch == 1 else counts


_OF_SIZES = {"BroadcastGradientArgs", "Rank", "Shape", "ShapeN", "Size", "TensorListLength"}


def _rule_of(op):
    """Return the name of the rule of an operation."""
    if op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return op.type
    kernel = kernel_name(op)
    return f"kernel:{kernel}" if kernel else "XlaCall"


def _in_body(op):
    """Return the types of operations in the body of a loop or condition."""
    attributes = op.node_def.attr
    called = [attributes[n].func for n in ("body", "then_branch", "else_branch") if n in attributes]
    called += attributes["branches"].list.func if "branches" in attributes else []
    functions = [op.graph._get_function(function.name) for function in called]
    return {node.op for f in functions for node in f.cached_definition.node_def}


def _is_divided(item):
    placements = (*item.placements, *item.decision.output_placements)
    return any(isinstance(p, Shard | Partial | ListOf) for p in placements)


def _reduces(item):
    """Whether an operation waits for the sum of what the replicas have."""
    return not any(isinstance(placement, Shard) for placement in item.placements) and any(
        isinstance(placement, Partial) and want == REPLICATE
        for placement, want in zip(item.placements, item.decision.input_forms, strict=True)
    )


def failures_of(rows):
    """Test rows; return what is wrong with which of them."""
    started = []
    for is_static in (False, True):
        for empty in (True, False):
            chosen = [r for r in rows if r.empty == empty and (r.static or not is_static)]
            counts = [STATIC] if is_static else COUNTS if empty else COUNTS[:-1]
            for some in _portions(chosen, is_static):
                started.append((some, counts, is_static, _started(some, counts, is_static)))
    return [message for step in started for message in _finished(*step)]


def _portions(rows, is_static):
    """Divide rows among steps."""
    portions, size = [], _MOST
    for row in rows:
        if size >= _MOST:
            portions.append([])
            size = 0
        portions[-1].append(row)
        size += len(_cases_of(row, is_static))
    return portions


def _started(*args):
    try:
        return Program(*args)
    except Exception as error:  # of which row, `_finished` finds out
        return error


def _finished(rows, counts, is_static, program):
    """Return what is wrong with a program; if it cannot run, the first row of which this is so."""
    try:
        if isinstance(program, Exception):
            raise program
        return program.failures()
    except Exception as raised:
        error = raised
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        try:
            Program(half, counts, is_static).computed.result()
            rows = rows[len(half) :]
        except Exception as raised:
            rows, error = half, raised
    return [f"{rows[0].types} of {rows[0].inputs}: {type(error).__name__}: {error}"]
