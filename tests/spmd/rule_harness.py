"""Run operations divided over replicas, and whole, in one traced step for many of them."""

import functools
import inspect
import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from kdist.spmd.collectives import Collectives
from kdist.spmd.placements import REPLICATE, ListOf, Partial, Shard
from kdist.spmd.run import partition
from tensorflow.python.distribute import values
from tensorflow.python.framework import op_def_registry

B = "batch"
REPLICAS = 3
COUNTS = [(3, 2, 4), (1, 0, 0), (0, 0, 2), (2, 0, 1), (0, 0, 0)]
STATIC = (3, 2, 4)
_WIDTH = 400
_SLOTS = 3


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
        types: The types of operations that it tests, all of which `fn` has to make.
        fn: Makes results from the inputs, and from a variable behind them if there is one.
        inputs: Several lists of inputs, each tried. A tuple stands for `Input` of this shape.
        divided: Whether the rules have to divide all that `fn` makes.
        batches: Whether two concatenated batches are tried too.
        replicated: Whether inputs are tried whole, in turn, beside others that are divided.
        mixed: Whether all has to be divided with such inputs too.
        empty: Whether `fn` works without any row.
        static: Whether it is tried with known numbers of rows too.
        gradients: Whether gradients of the results are computed too.
        variable: The initial value of a variable.
        tolerance: How far results may differ, relatively and absolutely.
    """

    types: str
    fn: object
    inputs: list
    divided: bool = True
    batches: bool = True
    replicated: bool = True
    mixed: bool = True
    empty: bool = True
    static: bool = True
    gradients: bool = False
    variable: object = None
    tolerance: float = 1e-12

    def __post_init__(self):
        self.inputs = [
            [one if isinstance(one, Input) else Input(one) for one in inputs]
            for inputs in self.inputs
        ]

    @property
    def name(self):
        """The name of its test."""
        first, *others = self.types.split() or ["composite"]
        return first + (f"+{len(others)}" if others else "")


def raw(kind, **attributes):
    """Return a function that makes an operation of its inputs, in their order."""
    function = getattr(tf.raw_ops, kind)
    count = len(op_def_registry.get(kind).input_arg)
    names = list(inspect.signature(function).parameters)[:count]

    def make(*inputs):
        return function(**dict(zip(names, inputs, strict=True)), **attributes)

    return make


@dataclass(eq=False)
class Case:
    """A row with one choice of inputs."""

    row: Row
    scope: str
    inputs: list
    kind: str
    whole: int | None = None

    def __str__(self):
        shapes = ", ".join(str(one.shape) for one in self.inputs)
        return f"{self.row.types} of {shapes}, {self.kind}"


_numbers = itertools.count()


def cases_of(row):
    """Return the cases of a row: rows of one batch, of two, and inputs that are whole."""
    found = []

    def add(inputs, kind, whole=None):
        found.append(Case(row, f"case{next(_numbers)}x", inputs, kind, whole))

    for number, inputs in enumerate(row.inputs):
        add(inputs, "rows")
        if row.batches and number == 0:
            add(inputs, "batches")
        places = [i for i, one in enumerate(inputs) if one.has_rows]
        if row.replicated and number < 2 and len(places) > 1:
            for place in places:
                add(inputs, f"input {place} whole", place)
    return found


class Inputs:
    """Makes inputs of the operations from those of a step."""

    def __init__(self, first, second, twins):
        self.batches = {"first": first, "second": second, "twin": twins}
        self.memo = {}

    def get(self, spec, slot, kind, is_whole):
        """Return an input; `slot` tells those of one operation apart."""
        key = (spec, slot, kind, is_whole)
        if key not in self.memo:
            with tf.name_scope("make"):
                self.memo[key] = self._make(spec, slot, kind, is_whole)
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


def step_of(cases, variables):
    """Return a step that makes the results of all cases."""

    def step(first, second, twins):
        inputs = Inputs(first, second, twins)
        results = []
        for case in cases:
            given = [
                inputs.get(
                    spec, slot, case.kind if case.kind == "batches" else "", slot == case.whole
                )
                for slot, spec in enumerate(case.inputs)
            ]
            extra = [variables[case.row]] if case.row in variables else []
            with tf.name_scope(case.scope):
                results.append(_results(case.row, given, extra))
        return results

    return step


def _results(row, given, extra):
    if not row.gradients:
        return tf.nest.flatten(row.fn(*given, *extra))
    sources = [one for one in [*given, *extra] if one.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        made = tf.nest.flatten(row.fn(*given, *extra))
        loss = tf.add_n([tf.reduce_sum(tf.sin(one)) for one in made if one.dtype.is_floating])
    found = tape.gradient(loss, sources)
    return [*made, *(tf.convert_to_tensor(one) for one in found if one is not None)]


class Program:
    """The divided and the whole step of some rows.

    Args:
        rows: What is computed in one step.
        static: The numbers of rows if they are known while the step is traced.
    """

    def __init__(self, rows, static=None):
        cases = [case for row in rows for case in cases_of(row)]
        self.cases = [case for case in cases if static is None or case.whole is None]
        self.static = static
        self.strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{i}" for i in range(REPLICAS)], tf.distribute.ReductionToOneDevice()
        )
        self.explanation = None
        with self.strategy.scope():
            copied = {row: tf.Variable(row.variable) for row in rows if row.variable is not None}
        alone = {row: tf.Variable(row.variable) for row in rows if row.variable is not None}
        self.variables = (copied, alone)
        copies = {id(v._primary.handle): [c.handle for c in v.values] for v in copied.values()}
        divided, whole = step_of(self.cases, copied), step_of(self.cases, alone)

        def run(*inputs):
            made, self.explanation = partition(
                self.strategy,
                divided,
                [values.PerReplica(tuple(parts)) for parts in inputs],
                {},
                copies_of=lambda handle: copies.get(id(handle)),
                collectives=Collectives(self.strategy.extended.worker_devices),
            )
            return made

        self.run = _function(run, [self._parts_spec(b) for b in range(3)])
        self.oracle = _function(whole, [self._spec(self._total(b)) for b in range(3)])

    def _total(self, batch):
        return None if self.static is None else sum(_numbers_of(self.static, batch))

    def _parts_spec(self, batch):
        numbers = [None] * REPLICAS if self.static is None else _numbers_of(self.static, batch)
        return [self._spec(n) for n in numbers]

    def _spec(self, rows):
        return tf.TensorSpec([rows, _WIDTH * _SLOTS], "float64")

    @functools.lru_cache  # noqa: B019 - a program lives as long as its module's tests
    def results(self, counts):
        """Return, for each case, what is expected and what the replicas computed."""
        rng = np.random.default_rng(7)
        inputs = [
            [rng.normal(size=(n, _WIDTH * _SLOTS)) for n in _numbers_of(counts, batch)]
            for batch in range(3)
        ]
        expected = self.oracle(*(tf.concat(parts, 0) for parts in inputs))
        made = self.run(*([tf.constant(part) for part in parts] for parts in inputs))
        numpy = functools.partial(tf.nest.map_structure, _numpy)
        return dict(zip(self.cases, zip(numpy(expected), numpy(made), strict=True), strict=True))

    def items(self, case):
        """Return the planned operations of a case."""
        return [i for i in self.explanation.planner.items if f"{case.scope}/" in i.op.name]


def _numpy(value):
    if isinstance(value, values.PerReplica):
        return np.concatenate([part.numpy() for part in value.values])
    return np.asarray(value.numpy())


def _numbers_of(counts, batch):
    """Return the numbers of rows of a batch: those of the second one are others."""
    return (counts[2], counts[0], counts[1]) if batch == 1 else counts


def _function(fn, signature):
    return tf.function(fn, autograph=False, input_signature=signature)


def check(program, row, counts):
    """Compare all results of a row."""
    for case, (expected, made) in program.results(counts).items():
        if case.row is not row:
            continue
        for number, (one, other) in enumerate(zip(expected, made, strict=True)):
            message = f"result {number} of {case}, {counts} rows"
            assert one.dtype == other.dtype, message
            if one.dtype.kind in "fc":
                np.testing.assert_allclose(
                    other, one, row.tolerance, row.tolerance, err_msg=message
                )
            else:
                np.testing.assert_array_equal(other, one, err_msg=message)


def check_divided(program, row):
    """Check that the rules of a row were asked, and divided what they are to divide."""
    asked = set()
    for case in program.cases:
        if case.row is not row:
            continue
        for item in program.items(case):
            out = item.decision.out
            divided = [
                p for p in (*item.placements, *out) if isinstance(p, Shard | Partial | ListOf)
            ]
            if divided or item.op.type in _OF_SIZES:
                asked |= {item.op.type, *_in_body(item.op)}
            if row.divided and (row.mixed or case.whole is None):
                gathered = item.whole or (item.op.type in row.types.split() and _reduces(item))
                assert not gathered, f"{item.op.name} {item.placements} is whole: {case}"
    if program.static is not None:
        return  # what is known is a constant
    missing = set(row.types.split()) - asked
    assert not missing, f"{missing} are not made of what is divided"


_OF_SIZES = {"BroadcastGradientArgs", "Rank", "Shape", "ShapeN", "Size", "VariableShape"}


def _in_body(op):
    """Return the types of operations in the body of a loop or condition."""
    found = set()
    for name in ("body", "then_branch", "else_branch"):
        if name in op.node_def.attr:
            function = op.graph._get_function(op.get_attr(name).name)
            found |= {node.op for node in function.cached_definition.node_def}
    return found


def _reduces(item):
    """Whether an operation waits for the sum of what the replicas have."""
    return not any(isinstance(placement, Shard) for placement in item.placements) and any(
        isinstance(placement, Partial) and want == REPLICATE
        for placement, want in zip(item.placements, item.decision.want, strict=True)
    )


def types_of(rows):
    """Return all types of operations that rows test."""
    return {kind for row in rows for kind in row.types.split()}
