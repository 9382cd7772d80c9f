"""Write the functions of a planned step: each does for one replica what a stage does."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph as func_graphs
from tensorflow.python.ops import handle_data_util

from .collectives import HOST
from .effects import DRAWN_BY_XLA, QUIET, READS
from .explanation import place_of
from .functions import (
    copy_of,
    create_like,
    function_of,
    is_compiled,
    set_traceback,
    user_traceback,
)
from .placements import (
    AsIs,
    ListOf,
    Local,
    Opaque,
    OwnRows,
    Partial,
    Placement,
    Replicate,
    Rows,
    Shard,
)
from .plan import Item, Planner, Want, is_never_used
from .sizes import AnySize, AxisSize, Element, Space, key_of

WRONG = "kdist has divided"
"""The beginning of the message that names an operation."""
_numbers = itertools.count()
_LARGEST_SLICED_RANK = 8  # of TensorFlow's Slice


class StageGraph(func_graphs.FuncGraph):
    """Graph of a stage, whose error messages name lines and layers of the user's program."""

    _traceback: Any = None  # of the operation of the step that is written

    @contextlib.contextmanager
    def writes(self, op: Any) -> Iterator[None]:
        """Give the operations made in this block the scope and traceback of one of the step."""
        before, self._traceback = self._traceback, user_traceback(op)
        with self.name_scope(f"{op.name}/"):
            yield
        self._traceback = before

    def _create_op_internal(self, *args: Any, **options: Any) -> Any:
        made = super()._create_op_internal(*args, **options)
        set_traceback(made, self._traceback)
        return made


class Stage:
    """A function that is being written.

    Args:
        planner: The plan of the operations that it has.
        name: The beginning of its name.
    """

    # Where kernels run that XLA compiles; `None` is the replica's own device.
    kernel_device: str | None = None
    draws_by_xla = False  # XLA draws other numbers than TensorFlow

    def __init__(self, planner: Planner, name: str) -> None:
        self.planner = planner
        self.graph = StageGraph(f"kdist_{name}_{next(_numbers)}")
        self.inputs: dict[Any, Any] = {}  # what each placeholder stands for -> placeholder
        self.values: dict[int, Any] = {}  # tensor id -> what this replica has of it
        self.operations: dict[Any, Any] = {}
        self._memo: dict[Any, Any] = {}

    # Where values come from

    def outer_value(self, tensor: Any) -> Any:
        """Return what this replica has of a tensor that another function makes."""
        raise NotImplementedError

    def outer_replicated(self, tensor: Any) -> Any:
        """Return a tensor that was reduced or gathered before this function."""
        raise NotImplementedError

    def outer_scattered(self, tensor: Any) -> Any:
        """Return the replica's rows of a tensor that was summed before this function."""
        raise NotImplementedError

    def outer_symbol(self, key: Any) -> Any:
        """Return the replica's index, the numbers of rows of a space, or another unknown size."""
        raise NotImplementedError

    def has(self, tensor: Any) -> bool:
        """Whether this function makes a tensor."""
        raise NotImplementedError

    def add_input(
        self, key: Any, dtype: Any, shape: Any, like: Any = None, axis: int | None = None
    ) -> Any:
        """Return the placeholder of a value that the function is called with.

        Args:
            key: What the value is.
            dtype: Its type.
            shape: Its shape.
            like: A resource or list that it is alike.
            axis: For a variable that is divided: along which axis.
        """
        if key not in self.inputs:
            with self.graph.as_default():
                made = tf.compat.v1.placeholder(dtype, shape)
            if like is not None:
                handle_data_util.copy_handle_data(like, made)
            if axis is not None:
                _forget_size(made, axis)
            self.inputs[key] = made
        return self.inputs[key]

    def value(self, tensor: Any) -> Any:
        """Return what this replica has of a tensor."""
        tensor = self.planner.canonical(tensor)
        if id(tensor) not in self.values:
            if tensor.op.type == "Const":
                self.values[id(tensor)] = self.copy(tensor.op, [])[0]
            elif self.has(tensor):
                self.emit(self.planner.item_of[id(tensor)])
            else:
                self.values[id(tensor)] = self.outer_value(tensor)
        return self.values[id(tensor)]

    def get(self, tensor: Any, placement: Placement, want: Want) -> Any:
        """Return a tensor as an operation wants it."""
        if isinstance(want, AsIs | Opaque) or is_never_used(tensor):
            return self.value(tensor)
        if isinstance(want, Local):
            sizes = self.planner.sizes(tensor)
            if not want.rows or sizes is None:
                return None
            dims = sizes.tolist() if sizes.ndim else [sizes.item()]
            return self.size_vector(dims, tensor.dtype, dict(want.rows))
        shard = want.shard if isinstance(want, OwnRows) else want
        if isinstance(shard, Shard):
            if isinstance(placement, Shard) and placement.fits(shard):
                return self.value(tensor)
            if (scattered := self.planner.scattered.get(id(tensor))) and scattered.fits(shard):
                return self.cached((id(tensor), "own"), lambda: self.outer_scattered(tensor))
            broadcasts = isinstance(want, OwnRows)
            key = (id(tensor), shard.axis, shard.rows, broadcasts)
            return self.cached(
                key, lambda: self.own_rows(self.replicated(tensor, placement), shard, broadcasts)
            )
        if isinstance(want, Partial):
            if isinstance(placement, Partial):
                return self.value(tensor)
            return self.cached(
                (id(tensor), "partial"),
                lambda: self._first_only(self.replicated(tensor, placement)),
            )
        return self.replicated(tensor, placement)

    def replicated(self, tensor: Any, placement: Placement) -> Any:
        """Return the whole tensor."""
        if isinstance(placement, Replicate | ListOf):
            return self.value(tensor)
        item = self.planner.item_of.get(id(tensor))
        if item is not None and item.decision.alias and isinstance(placement, Partial):
            return self.cached((id(tensor), "alias"), lambda: self._in_another_shape(item, tensor))
        return self.cached((id(tensor), "whole"), lambda: self.outer_replicated(tensor))

    def _in_another_shape(self, item: Item, tensor: Any) -> Any:
        inputs = [self.replicated(t, self.planner.placement(t)) for t in item.inputs]
        return self.copy(item.op, inputs)[tensor.value_index]

    def _first_only(self, tensor: Any) -> Any:
        """Return the tensor on the first replica and zeros on the others."""
        return tf.where(self.index == 0, tensor, tf.zeros_like(tensor))

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what is made for a key, once in this function."""
        if key not in self._memo:
            with self.graph.as_default():
                self._memo[key] = make()
        return self._memo[key]

    # Operations

    def emit(self, item: Item) -> None:
        """Write an operation."""
        with self.graph.writes(item.op):
            self._emit(item)

    def _emit(self, item: Item) -> None:
        inputs = [
            self.get(tensor, placement, want)
            for tensor, placement, want in zip(
                item.inputs, item.placements, item.decision.want, strict=True
            )
        ]
        with self.graph.as_default(), tf.control_dependencies(self.controls(item)):
            emit = item.decision.emit
            outputs = self.copy(item.op, inputs) if emit is None else emit(self, item.op, inputs)
        if outputs and emit is not None and hasattr(outputs[0], "op"):
            self.operations[item.op] = outputs[0].op
        for output, made, placement in zip(
            item.op.outputs, outputs, item.decision.out, strict=True
        ):
            # What a replica has of a tensor has its shape, but for the divided axis.
            shape = local_shape(output, placement)
            if not made.shape.is_compatible_with(shape):
                raise ValueError(
                    f"{WRONG} {item.op.type} of {place_of(item.op)} wrong ({placement}): a"
                    f" replica has the shape {made.shape}, not {shape}: please report this"
                )
            if not made.shape.is_fully_defined():
                made.set_shape(shape)
            self.values[id(output)] = made

    def controls(self, item: Item) -> list[Any]:
        """Return the operations of this function that have to run before one."""
        return [self.operations[op] for op in item.controls if op in self.operations]

    def copy(self, op: Any, inputs: Sequence[Any]) -> list[Any]:
        """Write a copy of an operation with other inputs; returns its results."""
        if self.draws_by_xla and op.type in DRAWN_BY_XLA:
            # Also in a stage that it does not compile.
            def drawn(*given: Any) -> Any:
                # A call with an effect: that of constants would be computed by TensorFlow's kernel.
                tf.raw_ops.Assert(condition=True, data=[0])
                return copy_of(tf.compat.v1.get_default_graph(), op, given).outputs

            draw = tf.function(drawn, autograph=False, jit_compile=True)
            with self.graph.as_default(), tf.device(self.kernel_device):
                return list(draw(*inputs))
        with self.graph.as_default():
            made = copy_of(self.graph, op, inputs)
        self.operations[op] = made
        for output, new in zip(op.outputs, made.outputs, strict=True):
            if output.dtype.name == "resource":  # elements of a list may have other local shapes
                handle_data_util.copy_handle_data(output, new)
        return list(made.outputs)

    def call_kernel(self, op: Any, inputs: Sequence[Any]) -> list[Any]:
        """Call a kernel; if XLA does not compile it, write its operations here."""
        if is_compiled(op):
            with self.graph.as_default(), tf.device(self.kernel_device):
                return self.copy(op, inputs)
        graph = function_of(op, op.get_attr("f").name).graph
        made = {id(inner): value for inner, value in zip(graph.inputs, inputs, strict=True)}
        for one in graph.get_operations():
            if one.type != "Placeholder":
                outputs = self.copy(one, [made[id(t)] for t in one.inputs])
                made |= {id(t): value for t, value in zip(one.outputs, outputs, strict=True)}
        return [made[id(t)] for t in graph.outputs]

    # Sizes

    @property
    def on_cpus(self) -> bool:
        """Whether all replicas are on CPUs."""
        return self.kernel_device is not None

    @contextlib.contextmanager
    def on_host(self) -> Iterator[None]:
        """Place the operations of this block on the host of a GPU, which needs sizes there."""
        with tf.device(None if self.on_cpus else HOST), tf.name_scope("on_host"):
            yield

    @property
    def index(self) -> Any:
        """The replica's number."""
        return self.outer_symbol("index")

    def counts(self, space: Space) -> Any:
        """Return the numbers of rows of all replicas."""
        return self.outer_symbol(space.root())

    def local(self, rows: Rows, dtype: Any) -> Any:
        """Return the replica's number of rows."""
        blocks = self.blocks(rows, dtype)
        total = blocks[0][0]
        for count, _ in blocks[1:]:
            total = total + count
        return total

    def blocks(self, rows: Rows, dtype: Any) -> list[tuple[Any, Any]]:
        """Return, for each segment of rows, the replica's number of rows and its first one."""
        return [
            self._block(space.root(), unit, tf.as_dtype(dtype)) for space, unit in rows.segments
        ]

    def global_blocks(self, rows: Rows, dtype: Any) -> list[tuple[Any, Any]]:
        """Return the same, but the first row's place among those of all segments."""
        before: Any = tf.constant(0, dtype)
        found = []
        for (count, first), segment in zip(self.blocks(rows, dtype), rows.segments, strict=True):
            found.append((count, before + first))
            if len(rows.segments) > 1:
                before = before + self.size(Rows((segment,)).total, dtype)
        return found

    def _block(self, space: Space, unit: AnySize, dtype: Any) -> tuple[Any, Any]:
        def make() -> tuple[Any, Any]:
            counts = self._counts(space, dtype)
            count = counts[self.index]
            first = tf.reduce_sum(counts[: self.index])
            times = self.size(unit, dtype)
            return tf.cast(count, dtype) * times, tf.cast(first, dtype) * times

        return self.cached(("block", space, key_of(unit), dtype), make)  # type: ignore[no-any-return]

    def _counts(self, space: Space, dtype: Any) -> Any:
        """Return the numbers of rows; as floats, of which a GPU gets one copy for all uses."""
        counts = self.counts(space)
        if not dtype.is_floating or dtype.size < 4:
            return counts
        return self.cached(("counts", space, dtype), lambda: tf.cast(counts, dtype))

    def size(self, size: AnySize, dtype: Any) -> Any:
        """Return a size of the whole batch as a scalar."""
        dtype = tf.as_dtype(dtype)
        if isinstance(size, int):
            return tf.constant(size, dtype)

        def make() -> Any:
            total: Any = None
            for symbols, factor in size.terms.items():
                term: Any = None
                for symbol in symbols:
                    value = self._symbol(symbol, dtype)
                    term = value if term is None else term * value
                if term is None:
                    term = tf.constant(factor, dtype)
                elif factor != 1:
                    term = term * tf.constant(factor, dtype)
                total = term if total is None else total + term
            return total

        return self.cached(("size", key_of(size), dtype), make)

    def _symbol(self, symbol: Any, dtype: Any) -> Any:
        def make() -> Any:
            if isinstance(symbol, Space):
                return tf.cast(tf.reduce_sum(self._counts(symbol, dtype)), dtype)
            return tf.cast(self.symbol(symbol), dtype)

        return self.cached(("symbol", symbol, dtype), make)

    def symbol(self, symbol: AxisSize | Element) -> Any:
        """Return the value of a symbol as a scalar of `int32`."""
        if self.has(symbol.tensor) or self.planner.canonical(symbol.tensor).op.type == "Const":
            return self.read_symbol(symbol)
        return self.outer_symbol(symbol)

    def read_symbol(self, symbol: AxisSize | Element) -> Any:
        """Return the value of a symbol from a tensor that this function has."""

        def make() -> Any:
            value = self.value(symbol.tensor)
            if isinstance(symbol, AxisSize):
                return tf.shape(value)[symbol.axis]
            return tf.cast(value if value.shape.rank == 0 else value[symbol.index], "int32")

        return self.cached(("read", symbol), make)

    def size_vector(
        self, sizes: Sequence[AnySize], dtype: Any, rows: dict[int, Rows] | None = None
    ) -> Any:
        """Return sizes as a vector, those in `rows` as the replica's own numbers of rows."""
        rows = rows or {}
        dtype = tf.as_dtype(dtype)
        key = ("vector", tuple(map(key_of, sizes)), tuple(rows.items()), dtype)

        def make() -> Any:
            if not rows and all(isinstance(s, int) for s in sizes):
                return tf.constant(list(sizes), dtype)
            parts = [
                self.local(rows[i], dtype) if i in rows else self.size(size, dtype)
                for i, size in enumerate(sizes)
            ]
            return tf.stack(parts)

        return self.cached(key, make)

    def own_rows(self, tensor: Any, shard: Shard, broadcasts: bool = False) -> Any:
        """Return the replica's rows of a whole tensor; if it may, all of a single one."""
        axis = shard.axis
        size = tf.shape(tensor)[axis]
        total = self.size(shard.rows.total, tf.int32)
        # Without any row, TensorFlow may compute with another size where a shape has a -1.
        right = tf.logical_or(tf.equal(size, total), tf.equal(total, 0))
        if broadcasts:
            single = tf.equal(size, 1)
            right = tf.logical_or(right, single)
        message = f"axis {axis} of {tensor.name} has to have the rows of the batch, {shard.rows}"
        with tf.control_dependencies([tf.debugging.Assert(right, [message, size, total])]):
            tensor = tf.identity(tensor)
        parts: list[Any] = []
        for count, begin in self.global_blocks(shard.rows, tf.int32):
            if broadcasts:
                begin = tf.where(single, 0, begin)
                count = tf.where(single, 0 if parts else 1, count)
            parts.append(rows_from(tensor, axis, begin, count))
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis)

    # Functions within this one

    def body(
        self,
        planner: Planner,
        graph: Any,
        like: Sequence[tuple[Any, Any]],
        wants: Sequence[Want],
        sources: Sequence[int | None],
        *,
        is_condition: bool = False,
        is_compiled: bool = False,
    ) -> Body:
        """Write the body of a loop, condition or call; see `Body`."""
        body = Body(self, planner, graph, like)
        body.draws_by_xla = body.draws_by_xla or is_compiled
        body.check_assumptions()
        with planner.assuming():
            body.write(wants, sources, is_condition)
        return body

    def call_loop(self, op: Any, inputs: Sequence[Any], body: Body, test: Body) -> list[Any]:
        """Write a loop with a body and a condition."""
        extras = dict.fromkeys([*body.extras, *test.extras])
        for one in (body, test):
            one.finish(list(extras), returns_extras=one is body)
        args = [*inputs, *(self.outer_of_body(key) for key in extras)]
        attributes = dict(op.node_def.attr)
        attributes.update(body=body.reference, cond=test.reference)
        attributes.pop("_num_original_outputs", None)
        attributes["T"] = _types(args)
        shapes = [p.shape for p in list(body.inputs.values())[: len(inputs)]]
        attributes["output_shapes"] = shapes_attribute(
            [*shapes, *(a.shape for a in args[len(inputs) :])]
        )
        made = self.create(op, args, [a.dtype for a in args], attributes)
        for output, given in zip(made.outputs, inputs, strict=False):
            handle_data_util.copy_handle_data(given, output)
        return list(made.outputs[: len(inputs)])

    def call_condition(self, op: Any, inputs: Sequence[Any], branches: Sequence[Body]) -> list[Any]:
        """Write a condition with its branches."""
        extras = dict.fromkeys(key for branch in branches for key in branch.extras)
        for one in branches:
            one.finish(list(extras), returns_extras=False)
        predicate, *given = inputs
        args = [*given, *(self.outer_of_body(key) for key in extras)]
        attributes = dict(op.node_def.attr)
        references = [branch.reference for branch in branches]
        if "branches" in attributes:
            functions = attr_value_pb2.AttrValue.ListValue(func=[r.func for r in references])
            attributes["branches"] = attr_value_pb2.AttrValue(list=functions)
        else:
            attributes.update(zip(("then_branch", "else_branch"), references, strict=True))
        attributes["Tin"] = _types(args)
        attributes["output_shapes"] = shapes_attribute([tf.TensorShape(None) for _ in op.outputs])
        made = self.create(op, [predicate, *args], [o.dtype for o in op.outputs], attributes)
        for output, new in zip(op.outputs, made.outputs, strict=True):
            if output.dtype.name == "resource":
                handle_data_util.copy_handle_data(output, new)
        return list(made.outputs)

    def call_xla(self, op: Any, inputs: Sequence[Any], body: Body) -> list[Any]:
        """Write a call of a function that XLA has to compile."""
        compiled = attr_value_pb2.AttrValue(b=True)
        body.finish(list(body.extras), returns_extras=False, _XlaMustCompile=compiled)
        args = [*inputs, *(self.outer_of_body(key) for key in body.extras)]
        attributes = dict(op.node_def.attr)
        attributes.update(f=body.reference, Tin=_types(args), _XlaMustCompile=compiled)
        made = self.create(op, args, [o.dtype for o in op.outputs], attributes)
        return list(made.outputs)

    def create(self, op: Any, args: Sequence[Any], dtypes: Sequence[Any], attributes: Any) -> Any:
        """Write an operation of the type of another one, with other attributes."""
        made = create_like(self.graph, op, args, dtypes, attributes)
        self.operations[op] = made
        return made

    def outer_of_body(self, key: Any) -> Any:
        """Return what a body within this function needs of it."""
        if isinstance(key, AxisSize | Element):
            return self.symbol(key)
        return self.outer_symbol(key)


class Body(Stage):
    """The body of a loop or condition, which has no collectives.

    Args:
        parent: The function that it is in.
        planner: Its plan.
        graph: The traced body.
        like: For each of its inputs, the tensor of the whole batch, and what this replica has of
        it.
    """

    def __init__(
        self, parent: Stage, planner: Planner, graph: Any, like: Sequence[tuple[Any, Any]]
    ) -> None:
        super().__init__(planner, "body")
        self.graph.outer_graph = parent.graph
        self.parent, self.traced = parent, graph
        self.kernel_device, self.draws_by_xla = parent.kernel_device, parent.draws_by_xla
        self.extras: dict[Any, Any] = {}
        self.outputs: list[Any] = []
        self.reference: Any = None
        self._checks: list[Any] = []
        for position, (inner, (whole, own)) in enumerate(zip(graph.inputs, like, strict=True)):
            shape = local_shape(whole, planner.placement(inner))
            self.values[id(inner)] = self.add_input(position, whole.dtype, shape, own)

    def has(self, tensor: Any) -> bool:
        return id(self.planner.canonical(tensor)) in self.planner.tensors

    def check_assumptions(self) -> None:
        """Check that batches have equally many rows, where the plan of this body assumes it."""
        for merge in self.planner.assumptions:
            message = f"two batches of different sizes meet in {place_of(merge.op)}"
            one, other = self.counts(merge.one), self.counts(merge.other)
            with self.graph.as_default():
                same = tf.reduce_all(tf.equal(one, other))
                self._checks.append(tf.debugging.Assert(same, [message, one, other]))

    def controls(self, item: Item) -> list[Any]:
        return [*self._checks, *super().controls(item)]

    def outer_symbol(self, key: Any) -> Any:
        if key not in self.extras:
            shape = [None] if isinstance(key, Space) else []
            with self.graph.as_default():
                self.extras[key] = tf.compat.v1.placeholder("int32", shape)
        return self.extras[key]

    def write(
        self, wants: Sequence[Want], sources: Sequence[int | None], is_condition: bool
    ) -> None:
        """Write all operations and the results, some of which are inputs as they are."""
        needed = live_items(self.planner, self.traced.outputs)
        for item in self.planner.items:
            if item in needed and item.op not in self.operations:
                self.emit(item)
        placeholders = list(self.inputs.values())
        outputs = self.traced.outputs[:1] if is_condition else self.traced.outputs
        for output, want, source in zip(outputs, wants, sources, strict=True):
            if source is not None:
                self.outputs.append(placeholders[source])
                continue
            canonical = self.planner.canonical(output)
            self.outputs.append(self.get(canonical, self.planner.placement(canonical), want))

    def finish(self, extras: Sequence[Any], *, returns_extras: bool, **attributes: Any) -> None:
        """End the function; `extras` are what it is called with behind its inputs."""
        added = [self.outer_symbol(key) for key in extras]
        self.graph.inputs = [*self.inputs.values(), *added]
        with self.graph.as_default():
            outputs = [*self.outputs, *(added if returns_extras else [])]
        self.reference = end_function(self, outputs, self.parent.graph, **attributes)


def end_function(stage: Stage, outputs: Sequence[Any], outer: Any, **attributes: Any) -> Any:
    """Make a TensorFlow function of a stage, in an outer graph; returns a reference to it."""
    graph = stage.graph
    graph.outputs = list(outputs)
    # Reads as well: what changes a variable later waits for them.
    graph.control_outputs = [
        op for op in graph.get_operations() if op.op_def.is_stateful and op.type not in QUIET
    ]
    function = atomic_function.from_func_graph(graph.name, graph, attributes)
    outer._add_function_recursive(function)
    return reference(graph.name)


def reference(name: str) -> Any:
    """Return an attribute that names a function."""
    return attr_value_pb2.AttrValue(func=attr_value_pb2.NameAttrList(name=name))


def live_items(planner: Planner, outputs: Sequence[Any]) -> set[Item]:
    """Return the operations that have effects, or that outputs need."""
    needed = {id(planner.canonical(t)) for t in outputs}
    controls: set[Any] = set()
    live = set()
    for item in reversed(planner.items):
        op = item.op
        effect = op.op_def.is_stateful and op.type not in QUIET | READS
        if not effect and op not in controls and not any(id(o) in needed for o in op.outputs):
            continue
        live.add(item)
        controls.update(item.controls)
        needed.update(
            id(t)
            for t, want in zip(item.inputs, item.decision.want, strict=True)
            if not isinstance(want, Local)
        )
    return live


def rows_from(tensor: Any, axis: int, begin: Any, count: Any) -> Any:
    """Return `count` rows of a tensor along an axis, from row `begin` on."""
    rank = tensor.shape.rank
    if rank is None:
        here = tf.equal(tf.range(tf.rank(tensor)), axis)
        return tf.slice(tensor, tf.where(here, begin, 0), tf.where(here, count, -1))
    if rank > _LARGEST_SLICED_RANK:
        shape = tf.shape(tensor)
        before, rows, after = shape[:axis], shape[axis], shape[axis + 1 :]
        flat = tf.reshape(tensor, [tf.reduce_prod(before), rows, tf.reduce_prod(after)])
        own = tf.slice(flat, [0, begin, 0], [-1, count, -1])
        return tf.reshape(own, tf.concat([before, [count], after], 0))
    starts = tf.stack([begin if i == axis else 0 for i in range(rank)])
    counts = tf.stack([count if i == axis else -1 for i in range(rank)])
    return tf.slice(tensor, starts, counts)


def _forget_size(handle: Any, axis: int) -> None:
    """Let a handle be that of a part of the variable."""
    data = handle_data_util.get_resource_handle_data(handle)
    data.shape_and_type[0].shape.dim[axis].size = -1
    handle_data_util.set_handle_data(handle, data)


def local_shape(tensor: Any, placement: Placement) -> Any:
    """Return what is known of the shape that a replica has of a tensor."""
    if tensor.dtype.name in ("resource", "variant"):
        return tensor.shape
    if not isinstance(placement, Shard) or tensor.shape.rank is None:
        return tensor.shape
    return [None if axis == placement.axis else size for axis, size in enumerate(tensor.shape)]


def _types(tensors: Sequence[Any]) -> Any:
    value = attr_value_pb2.AttrValue.ListValue(type=[t.dtype.as_datatype_enum for t in tensors])
    return attr_value_pb2.AttrValue(list=value)


def shapes_attribute(shapes: Sequence[Any]) -> Any:
    """Return an attribute that lists shapes."""
    value = attr_value_pb2.AttrValue.ListValue(shape=[tf.TensorShape(s).as_proto() for s in shapes])
    return attr_value_pb2.AttrValue(list=value)
