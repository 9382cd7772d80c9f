"""Random programs of a step: lines of TensorFlow on batches, constants and variables.

A program is drawn as a list of numbers: any list is a program, and a part of it is one, too, so
that Hypothesis finds the smallest one that fails. It is written as Python source, which runs whole,
and divided over replicas.
"""

import math
import re
from dataclasses import dataclass

from hypothesis import strategies as st

# The inputs of every program: their sizes along each axis and what they hold. An axis has a fixed
# size, or a multiple of the rows of a batch, such as (1, "B").
B, C = (1, "B"), (1, "C")
INPUTS = {
    "x": ((B, 6), "float"),
    "image": ((B, 4, 4, 2), "float"),
    "label": ((B,), "int"),
    "other": ((C, 3), "float"),
    "w": ((6, 3), "float"),
    "v": ((3,), "float"),
    "s": ((), "float"),
}
BATCHES, VARIABLES = ("x", "image", "label", "other"), ("w", "v", "s")

_MOST_NUMBERS = 64  # of a tensor, the rows aside
_LARGEST = 1e4


class CannotError(Exception):
    """No value so far is one that an operation takes."""


@dataclass(frozen=True)
class Value:
    """A variable of the source.

    Args:
        name: Its name.
        dims: The sizes of its axes.
        kind: `"float"`, `"int"` or `"bool"`.
        bound: About how large its numbers may be.
    """

    name: str
    dims: tuple
    kind: str = "float"
    bound: float = 3.0

    @property
    def rank(self):
        """The number of axes."""
        return len(self.dims)


def times(dim, count):
    """Return the size of an axis that is repeated."""
    return dim * count if isinstance(dim, int) else (dim[0] * count, dim[1])


def plus(one, other):
    """Return the size of two axes in a row."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if not isinstance(one, int) and not isinstance(other, int) and one[1] == other[1]:
        return (one[0] + other[0], one[1])
    return (1, f"({one}+{other})")


def has_rows(value):
    """Whether an axis counts rows."""
    return any(not isinstance(dim, int) for dim in value.dims)


def fits(dims):
    """Whether tensors of these sizes are small."""
    rows = [dim for dim in dims if not isinstance(dim, int)]
    numbers = math.prod(dim if isinstance(dim, int) else dim[0] for dim in dims)
    return len(dims) <= 4 and len(rows) <= 2 and numbers <= _MOST_NUMBERS


class Writer:
    """Writes the lines of a program, one operation after another."""

    def __init__(self):
        self.values = [Value(name, *spec) for name, spec in INPUTS.items()]
        self.lines = []
        self.choices = iter(())
        self.unknown = 0

    def choose(self, options):
        """Return one of several options."""
        if not options:
            raise CannotError
        return options[next(self.choices, 0) % len(options)]

    def pick(self, test=lambda value: True, kind="float"):
        """Return a value that passes a test; the last ones come first."""
        return self.choose([v for v in reversed(self.values) if v.kind == kind and test(v)])

    def axis(self, value, test=lambda dim: True):
        """Return one of the axes."""
        return self.choose([axis for axis, dim in enumerate(value.dims) if test(dim)])

    def new_size(self):
        """Return the size of an axis of which only the data tell how long it is."""
        self.unknown += 1
        return (1, f"unknown{self.unknown}")

    def add(self, source, dims, kind="float", bound=1.0):
        """Add a line that computes a value."""
        if not fits(dims):
            raise CannotError
        if kind == "float" and bound > _LARGEST:
            source, bound = f"tf.tanh({source} / {bound:.0e})", 1.0
        name = f"a{len(self.values) - len(INPUTS)}"
        self.lines.append(f"{name} = " + (f"rounded({source})" if kind == "float" else source))
        self.values.append(Value(name, tuple(dims), kind, bound))

    def sum_of(self, value, source, dims, axes, scale=1.0):
        """Add a line that computes a sum of values."""
        count = math.prod(
            10 if not isinstance(d, int) else d for d in (value.dims[a] for a in axes)
        )
        self.add(source, dims, value.kind, value.bound * count * scale)


def any_value(value):
    """Whether an operation of any value takes it."""
    return True


def has_axes(value):
    """Whether a value is no scalar."""
    return value.rank > 0


def has_several_axes(value):
    """Whether a value has two axes or more."""
    return value.rank > 1


OPERATIONS = []


def operation(test=any_value, *kinds):
    """Let programs have an operation, by a function of the writer and a value.

    Args:
        test: Whether the operation takes a value.
        kinds: The kinds of values that it takes; without one, floats.
    """

    def add(fn):
        def write(writer):
            kind = writer.choose(kinds) if kinds else "float"
            fn(writer, writer.pick(test, kind))

        OPERATIONS.append(write)
        return fn

    return add


def without(dims, axis, *instead):
    """Return sizes with others in the place of one axis."""
    return (*dims[:axis], *instead, *dims[axis + 1 :])


# Element by element


@operation()
def linear(w, a):
    source, scale = w.choose(
        [("-{}", 1), ("2.0 * {}", 2), ("tf.stop_gradient({})", 1), ("{} / 3.0", 1), ("{} - 1.0", 2)]
    )
    w.add(source.format(a.name), a.dims, bound=a.bound * scale)


@operation()
def curved(w, a):
    source = w.choose(
        [
            "tf.tanh({})",
            "tf.sin({})",
            "tf.nn.relu({})",
            "tf.nn.softplus({})",
            "tf.sigmoid({})",
            "tf.nn.elu({})",
            "tf.exp(-tf.abs({}))",
            "tf.sqrt(tf.abs({}) + 0.1)",
            "tf.math.log1p(tf.abs({}))",
            "tf.square(tf.tanh({}))",
            "1.0 / (tf.abs({}) + 0.5)",
            "tf.clip_by_value({}, -1.0, 1.0)",
            "tf.abs({})",
            "tf.floor({})",
        ]
    )
    w.add(source.format(a.name), a.dims, bound=max(2.0, a.bound))


def _broadcast(one, other):
    dims = []
    for axis in range(-max(len(one), len(other)), 0):
        a = one[axis] if -axis <= len(one) else 1
        b = other[axis] if -axis <= len(other) else 1
        if a != b and 1 not in (a, b):
            return None
        dims.append(b if a == 1 else a)
    return tuple(dims)


@operation()
def binary(w, a):
    b = w.pick(lambda v: _broadcast(a.dims, v.dims) is not None)
    source, bound = w.choose(
        [
            ("{} + {}", a.bound + b.bound),
            ("{} * {}", a.bound * b.bound),
            ("{} - {}", a.bound + b.bound),
            ("{} / (tf.abs({}) + 0.5)", 2 * a.bound),
            ("tf.maximum({}, {})", max(a.bound, b.bound)),
            ("tf.minimum({}, {})", max(a.bound, b.bound)),
            ("tf.math.squared_difference({}, {})", (a.bound + b.bound) ** 2),
        ]
    )
    w.add(source.format(a.name, b.name), _broadcast(a.dims, b.dims), bound=bound)


@operation()
def added(w, a):
    b = w.pick(lambda v: v.dims == a.dims)
    w.add(f"tf.add_n([{a.name}, {b.name}, {a.name}])", a.dims, bound=2 * a.bound + b.bound)


@operation()
def compare(w, a):
    b = w.pick(lambda v: _broadcast(a.dims, v.dims) is not None)
    sign = w.choose([">", "<=", "<"])
    w.add(f"{a.name} {sign} {b.name}", _broadcast(a.dims, b.dims), "bool")


@operation()
def select(w, a):
    condition = w.pick(lambda v: _broadcast(v.dims, a.dims) == a.dims, "bool")
    w.add(f"tf.where({condition.name}, {a.name}, 0.5)", a.dims, bound=max(1.0, a.bound))


@operation(any_value, "bool")
def logic(w, a):
    b = w.pick(lambda v: v.dims == a.dims, "bool")
    w.add(w.choose(["~{}", "{} & {}", "{} | {}"]).format(a.name, b.name), a.dims, "bool")


@operation(any_value, "int", "bool", "float")
def cast(w, a):
    if a.kind == "float":
        w.add(f"tf.cast(tf.floor(2.0 * tf.tanh({a.name})), tf.int32)", a.dims, "int")
    else:
        w.add(f"tf.cast({a.name}, tf.float64)", a.dims, bound=max(1.0, a.bound))


@operation(any_value, "int")
def integers(w, a):
    b = w.pick(lambda v: _broadcast(a.dims, v.dims) is not None, "int")
    source = w.choose(
        ["({} + {}) % 5", "tf.maximum({}, {})", "({} * {}) % 7", "({} - {}) // 2 % 9"]
    )
    w.add(source.format(a.name, b.name), _broadcast(a.dims, b.dims), "int")


# Along axes


@operation(has_axes)
def reduce(w, a):
    axes = sorted({w.axis(a), w.axis(a)})
    name = w.choose(["sum", "mean", "max", "min", "logsumexp", "prod"])
    keep = w.choose([False, True])
    dims = tuple(
        1 if axis in axes else dim for axis, dim in enumerate(a.dims) if keep or axis not in axes
    )
    source = f"tf.reduce_{name}({a.name}, {axes}, {keep})"
    if name == "sum":
        w.sum_of(a, source, dims, axes)
    elif name == "prod":
        w.add(source.replace(a.name, f"tf.tanh({a.name})"), dims)
    else:  # of no rows it is not a number
        w.add(f"tf.clip_by_value({source}, -9.0, 9.0)", dims, bound=9.0)


@operation(has_axes)
def reduce_all(w, a):
    w.sum_of(a, f"tf.reduce_sum({a.name})", (), range(a.rank))


@operation(has_axes, "bool", "int")
def reduce_others(w, a):
    axis = w.axis(a)
    names = ("any", "all") if a.kind == "bool" else ("sum", "max", "min")
    source = f"tf.reduce_{w.choose(names)}({a.name}, {axis})"
    if a.kind == "int":
        source = f"tf.clip_by_value({source}, -50, 50) % 6"
    w.add(source, without(a.dims, axis), a.kind)


@operation(has_rows)
def count(w, a):
    axis = w.axis(a, lambda dim: not isinstance(dim, int))
    w.add(f"tf.cast(tf.shape({a.name})[{axis}], tf.float64)", (), bound=50.0)


@operation(has_rows)
def mean_by_size(w, a):
    axis = w.axis(a, lambda dim: not isinstance(dim, int))
    size = f"tf.cast(tf.maximum(tf.shape({a.name})[{axis}], 1), tf.float64)"
    w.add(f"tf.reduce_sum({a.name}, {axis}) / {size}", without(a.dims, axis), bound=a.bound)


@operation(has_axes)
def along_axis(w, a):
    source, kind, bound = w.choose(
        [
            ("tf.nn.softmax(tf.tanh({}), {})", "float", 1.0),
            ("tf.nn.log_softmax(tf.tanh({}), {})", "float", 6.0),
            ("tf.math.l2_normalize(tf.tanh({}), {}, 0.1)", "float", 6.0),
            ("tf.sort({}, {})", "float", a.bound),
            ("tf.argsort({}, {})", "int", a.bound),
            ("tf.roll({}, 1, {})", "float", a.bound),
            ("tf.reverse({}, [{}])", "float", a.bound),
        ]
    )
    w.add(source.format(a.name, w.axis(a)), a.dims, kind, bound)


@operation(has_axes)
def cumulative(w, a):
    axis, flags = w.axis(a), w.choose(["", ", exclusive=True", ", reverse=True"])
    w.sum_of(a, f"tf.cumsum({a.name}, {axis}{flags})", a.dims, [axis])


@operation(has_axes)
def argmax(w, a):
    axis = w.axis(a, lambda dim: isinstance(dim, int) and dim)
    w.add(f"tf.argmax({a.name}, {axis}, tf.int32)", without(a.dims, axis), "int")


@operation(lambda v: v.rank and isinstance(v.dims[-1], int) and v.dims[-1] > 1)
def top(w, a):
    number, kind = w.choose([(0, "float"), (1, "int")])
    w.add(f"tf.math.top_k({a.name}, 2)[{number}]", (*a.dims[:-1], 2), kind, a.bound)


@operation(has_several_axes)
def moments(w, a):
    axis = w.axis(a)
    w.lines.append(f"mean, variance = tf.nn.moments({a.name}, [{axis}], keepdims=True)")
    source, dims = w.choose(
        [
            (f"({a.name} - mean) / tf.sqrt(variance + 0.1)", a.dims),
            ("variance", without(a.dims, axis, 1)),
        ]
    )
    w.add(f"tf.clip_by_value({source}, -9.0, 9.0)", dims, bound=9.0)


@operation(has_axes, "int")
def wrapped_sum(w, a):
    axis = w.axis(a)
    source = f"tf.cast(tf.reduce_sum({a.name} * 2**30, {axis}), tf.float64) / 2**30"
    w.add(source, without(a.dims, axis), bound=4.0)


# Sums of products


@operation(lambda v: v.rank == 2)
def product(w, a):
    b = w.pick(lambda v: v.rank == 2 and a.dims[1] in v.dims)
    flip = b.dims[0] != a.dims[1]
    dims = (a.dims[0], b.dims[0] if flip else b.dims[1])
    w.sum_of(a, f"tf.matmul({a.name}, {b.name}, transpose_b={flip})", dims, [1], b.bound)


@operation(lambda v: v.rank == 2)
def product_over_rows(w, a):
    b = w.pick(lambda v: v.rank == 2 and v.dims[0] == a.dims[0])
    dims = (a.dims[1], b.dims[1])
    w.sum_of(a, f"tf.matmul({a.name}, {b.name}, transpose_a=True)", dims, [0], b.bound)


@operation(lambda v: v.rank and isinstance(v.dims[-1], int))
def dense(w, a):
    units = w.choose([2, 3, 4])
    source = f"tf.tensordot({a.name}, constant({a.dims[-1]}, {units}), 1)"
    w.sum_of(a, source, (*a.dims[:-1], units), [a.rank - 1], 2.0)


@operation(lambda v: v.rank == 3)
def batch_product(w, a):
    w.sum_of(
        a,
        f"tf.matmul({a.name}, {a.name}, transpose_b=True)",
        (*a.dims[:2], a.dims[1]),
        [2],
        a.bound,
    )


@operation(lambda v: v.rank == 2)
def einsum(w, a):
    b = w.pick(lambda v: v.rank == 2 and v.dims[0] == a.dims[0])
    names, dims, axes = w.choose(
        [
            ("ij,ik->ijk", (*a.dims, b.dims[1]), ()),
            ("ij,ik->jk", (a.dims[1], b.dims[1]), (0,)),
            ("ij,ik->i", a.dims[:1], (1,)),
        ]
    )
    w.sum_of(a, f"tf.einsum('{names}', {a.name}, {b.name})", dims, axes, 4 * b.bound)


@operation(lambda v: v.rank == 4 and all(isinstance(d, int) and d > 1 for d in v.dims[1:]))
def convolution(w, a):
    kind = w.choose(["conv", "depthwise", "max", "avg"])
    channels, same = a.dims[3], f"{a.name}, "
    if kind == "conv":
        w.add(
            f"tf.nn.conv2d({same}constant(2, 2, {channels}, 2), 1, 'SAME')",
            (*a.dims[:3], 2),
            bound=16 * a.bound,
        )
    elif kind == "depthwise":
        w.add(
            f"tf.nn.depthwise_conv2d({same}constant(2, 2, {channels}, 1), [1, 1, 1, 1], 'SAME')",
            a.dims,
            bound=8 * a.bound,
        )
    else:
        pooled = (a.dims[0], -(-a.dims[1] // 2), -(-a.dims[2] // 2), channels)
        w.add(f"tf.nn.{kind}_pool2d({same}2, 2, 'SAME')", pooled, bound=a.bound)


# Shapes


@operation(has_several_axes)
def join_axes(w, a):
    axis = w.choose(range(a.rank - 1))
    one, other = a.dims[axis : axis + 2]
    if not isinstance(one, int) and not isinstance(other, int):
        raise CannotError
    joined = times(other, one) if isinstance(one, int) else times(one, other)
    dims = (*a.dims[:axis], joined, *a.dims[axis + 2 :])
    w.add(f"tf.reshape({a.name}, {_shape_of(a, dims, axis)})", dims, a.kind, a.bound)


@operation(lambda v: any(_divisor(d) for d in v.dims))
def split_axis(w, a):
    axis = w.axis(a, _divisor)
    dim, by = a.dims[axis], _divisor(a.dims[axis])
    rest = dim // by if isinstance(dim, int) else (dim[0] // by, dim[1])
    pair = w.choose([(rest, by), (by, rest)])
    dims = without(a.dims, axis, *pair)
    unknown = axis + pair.index(rest)
    w.add(f"tf.reshape({a.name}, {_shape_of(a, dims, unknown)})", dims, a.kind, a.bound)


def _divisor(dim):
    number = dim if isinstance(dim, int) else dim[0]
    return next((by for by in (2, 3) if number % by == 0 and number), None)


def _shape_of(a, dims, unknown):
    """Return the source of a shape, with -1 for the axis that `reshape` changes."""
    parts = []
    for axis, dim in enumerate(dims):
        if axis == unknown:
            parts.append("-1")
        elif isinstance(dim, int):
            parts.append(str(dim))
        else:
            parts.append(f"tf.shape({a.name})[{a.dims.index(dim)}]")
    return f"[{', '.join(parts)}]"


@operation(has_several_axes)
def flatten(w, a):
    if sum(not isinstance(dim, int) for dim in a.dims) > 1:
        raise CannotError
    total = 1
    for dim in a.dims:
        total = times(dim, total) if isinstance(total, int) else times(total, dim)
    w.add(f"tf.reshape({a.name}, [-1])", (total,), a.kind, a.bound)


@operation(lambda v: v.rank == 2 and not isinstance(v.dims[0], int) and v.dims[1] in (2, 3, 6))
def flatten_either_way(w, a):
    """Sample by sample or column by column, also what is equal for all samples."""
    count = a.dims[1]
    equal = f"tf.broadcast_to(constant({count}), tf.shape({a.name}))"
    source = w.choose(
        [
            f"tf.reshape({a.name}, [-1])",
            f"tf.reshape(tf.transpose({a.name}), [-1])",
            f"tf.reshape({equal}, [-1])",
            f"tf.reshape(tf.transpose({equal}), [-1])",
        ]
    )
    w.add(source, (times(a.dims[0], count),), bound=a.bound)


@operation()
def expand(w, a):
    axis = w.choose(range(a.rank + 1))
    w.add(f"tf.expand_dims({a.name}, {axis})", (*a.dims[:axis], 1, *a.dims[axis:]), bound=a.bound)


@operation(lambda v: 1 in v.dims)
def squeeze(w, a):
    axis = w.axis(a, lambda dim: dim == 1)
    w.add(f"tf.squeeze({a.name}, [{axis}])", without(a.dims, axis), bound=a.bound)


@operation(has_several_axes)
def transpose(w, a):
    axes = list(range(a.rank))
    one, other = w.axis(a), w.axis(a)
    axes[one], axes[other] = other, one
    w.add(f"tf.transpose({a.name}, {axes})", [a.dims[i] for i in axes], bound=a.bound)


@operation(has_axes)
def concat(w, a):
    axis = w.axis(a)
    b = w.pick(
        lambda v: v.rank == a.rank and without(v.dims, axis) == without(a.dims, axis), a.kind
    )
    dims = without(a.dims, axis, plus(a.dims[axis], b.dims[axis]))
    w.add(f"tf.concat([{a.name}, {b.name}], {axis})", dims, bound=max(a.bound, b.bound))


@operation()
def stack(w, a):
    b = w.pick(lambda v: v.dims == a.dims)
    axis = w.choose(range(a.rank + 1))
    dims = (*a.dims[:axis], 2, *a.dims[axis:])
    w.add(f"tf.stack([{a.name}, {b.name}], {axis})", dims, bound=max(a.bound, b.bound))


@operation(has_axes)
def take_apart(w, a):
    axis = w.axis(a, lambda dim: isinstance(dim, int) and dim % 2 == 0)
    number = w.choose([0, 1])
    dims = without(a.dims, axis, a.dims[axis] // 2)
    w.add(f"tf.split({a.name}, 2, {axis})[{number}]", dims, bound=a.bound)


@operation(has_rows)
def halves(w, a):
    axis = w.axis(a, lambda dim: not isinstance(dim, int))
    dim = a.dims[axis]
    if dim[0] % 2:  # of an odd number of rows, the first half is the smaller one
        half, rest = (1, f"half of {dim}"), (1, f"rest of {dim}")
    else:
        half = rest = (dim[0] // 2, dim[1])
    number, dim = w.choose([(0, half), (1, rest)])
    size = f"tf.shape({a.name})[{axis}]"
    source = f"tf.split({a.name}, [{size} // 2, {size} - {size} // 2], {axis})[{number}]"
    w.add(source, without(a.dims, axis, dim), bound=a.bound)


@operation(has_axes)
def slices(w, a):
    axis = w.axis(a)
    dim = a.dims[axis]
    at = w.choose(["::-1", ":-1", "1:", "::2", ":2"])
    if isinstance(dim, int):
        size = len(range(dim)[slice(*[int(n) if n else None for n in at.split(":")])])
    else:
        size = dim if at == "::-1" else (1, f"{at} of {dim}")
    source = f"{a.name}[{', '.join([':'] * axis + [at])}]"
    w.add(source, without(a.dims, axis, size), bound=a.bound)


@operation(lambda v: v.rank > 1 and isinstance(v.dims[1], int) and v.dims[1] > 2)
def unknown_columns(w, a):
    index = w.pick(lambda v: v.rank == 1, "int")
    count = f"1 + tf.reduce_max(tf.concat([{index.name} % 3, [0]], 0))"
    w.add(f"{a.name}[:, : {count}]", without(a.dims, 1, w.new_size()), bound=a.bound)


@operation(has_several_axes)
def one_column(w, a):
    axis = w.axis(a, lambda dim: isinstance(dim, int) and dim)
    source = f"{a.name}[{', '.join([':'] * axis + [w.choose(['0', '-1'])])}]"
    w.add(source, without(a.dims, axis), bound=a.bound)


@operation(has_axes)
def tile(w, a):
    axis = w.axis(a)
    counts = [2 if i == axis else 1 for i in range(a.rank)]
    source = w.choose([f"tf.tile({a.name}, {counts})", f"tf.repeat({a.name}, 2, {axis})"])
    w.add(source, without(a.dims, axis, times(a.dims[axis], 2)), bound=a.bound)


@operation(has_axes)
def pad(w, a):
    axis = w.axis(a)
    pads = [[1, 1] if i == axis else [0, 0] for i in range(a.rank)]
    dims = without(a.dims, axis, plus(a.dims[axis], 2))
    w.add(f"tf.pad({a.name}, {pads})", dims, bound=a.bound)


@operation(lambda v: v.rank < 3)
def broadcast(w, a):
    b = w.pick(lambda v: has_rows(v) and _broadcast(a.dims, v.dims) == v.dims)
    w.add(f"tf.broadcast_to({a.name}, tf.shape({b.name}))", b.dims, bound=a.bound)


@operation(has_rows)
def filled(w, a):
    axis = w.axis(a, lambda dim: not isinstance(dim, int))
    size, dim = f"tf.shape({a.name})[{axis}]", a.dims[axis]
    source, dims = w.choose(
        [
            (f"tf.ones_like({a.name})", a.dims),
            (f"tf.zeros([{size}, 2], tf.float64)", (dim, 2)),
            (f"tf.fill([{size}], 0.5 * tf.tanh(s))", (dim,)),
            (f"tf.cast(tf.range({size}), tf.float64)", (dim,)),
            (f"tf.eye({size}, dtype=tf.float64)", (dim, dim)),
            (f"tf.linalg.band_part(tf.ones([{size}, {size}], tf.float64), -1, 0)", (dim, dim)),
        ]
    )
    w.add(source, dims, bound=50.0)


@operation(lambda v: v.rank > 1 and v.dims[-1] == v.dims[-2])
def square(w, a):
    source, dims = w.choose(
        [
            (f"tf.linalg.diag_part({a.name})", a.dims[:-1]),
            (f"tf.linalg.band_part({a.name}, 0, -1)", a.dims),
            (f"tf.linalg.set_diag({a.name}, tf.zeros_like({a.name})[..., 0])", a.dims),
        ]
    )
    w.add(source, dims, bound=a.bound)


# Rows by number


@operation(has_axes)
def gather(w, a):
    index = w.pick(lambda v: v.rank, "int")
    axis = w.axis(a)
    if isinstance(a.dims[axis], int):
        size = str(max(a.dims[axis], 1))
    else:
        size = f"tf.maximum(tf.shape({a.name})[{axis}], 1)"
    # Without any row there would be nothing to take: a row more is always there.
    pads = [[0, 1] if i == axis else [0, 0] for i in range(a.rank)]
    source = f"tf.gather(tf.pad({a.name}, {pads}), {index.name} % {size}, axis={axis})"
    w.add(source, without(a.dims, axis, *index.dims), bound=a.bound)


@operation(lambda v: v.rank > 1 and isinstance(v.dims[1], int) and v.dims[1])
def gather_in_row(w, a):
    index = w.pick(lambda v: v.rank and v.dims[0] == a.dims[0], "int")
    source = f"tf.gather({a.name}, {index.name} % {a.dims[1]}, axis=1, batch_dims=1)"
    w.add(source, (*index.dims, *a.dims[2:]), bound=a.bound)


@operation(lambda v: v.rank and has_rows(v))
def shuffled(w, a):
    axis = w.axis(a, lambda dim: not isinstance(dim, int))
    key = w.pick(lambda v: v.dims == (a.dims[axis],))
    w.add(f"tf.gather({a.name}, tf.argsort({key.name}), axis={axis})", a.dims, bound=a.bound)


@operation(has_axes)
def mask(w, a):
    condition = w.pick(lambda v: v.dims == a.dims[:1], "bool")
    w.add(
        f"tf.boolean_mask({a.name}, {condition.name})", (w.new_size(), *a.dims[1:]), bound=a.bound
    )


@operation(lambda v: v.rank < 3, "int")
def one_hot(w, a):
    w.add(f"tf.one_hot({a.name}, 4, dtype=tf.float64)", (*a.dims, 4))


@operation(has_axes)
def segments(w, a):
    index = w.pick(lambda v: v.dims == a.dims[:1], "int")
    source, dims = w.choose(
        [
            (f"tf.math.unsorted_segment_sum({a.name}, {index.name} % 4, 4)", (4, *a.dims[1:])),
            (
                f"tf.scatter_nd({index.name}[:, None] % 4, {a.name}, tf.concat([[4],"
                f" tf.shape({a.name})[1:]], 0))",
                (4, *a.dims[1:]),
            ),
            (
                f"tf.gather(tf.math.unsorted_segment_sum({a.name}, {index.name} % 4, 4),"
                f" {index.name} % 4)",
                a.dims,
            ),
        ]
    )
    w.sum_of(a, source, dims, [0])


@operation(lambda v: v.rank < 3, "int")
def embedding(w, index):
    w.add(f"tf.gather(w, {index.name} % 6)", (*index.dims, 3), bound=3.0)


# Random numbers


@operation(has_rows)
def draws(w, a):
    seed = w.choose(range(9))
    source = w.choose(
        [
            "tf.random.stateless_uniform({}, [{}, 3], dtype=tf.float64)",
            "tf.random.stateless_normal({}, [{}, 3], dtype=tf.float64)",
            "tf.random.stateless_truncated_normal({}, [{}, 3], dtype=tf.float64)",
        ]
    )
    w.add(source.format(f"tf.shape({a.name})", seed), a.dims, bound=3.0)


# Loops and conditions


@operation(has_axes)
def loop(w, a):
    body = w.choose(
        ["tf.tanh(one * 1.5)", "one * tf.reduce_sum(tf.tanh(s))", "tf.sin(one) - tf.reduce_max(v)"]
    )
    if a.rank == 2 and isinstance(a.dims[1], int):
        body = w.choose([body, f"tf.tanh(tf.matmul(one, constant({a.dims[1]}, {a.dims[1]})))"])
    body = w.choose([body, "tf.tanh(one - tf.reduce_sum(one, 0, True))"])
    source = (
        f"tf.while_loop(lambda i, one: i < 3, lambda i, one: (i + 1, {body}), (0, {a.name}))[1]"
    )
    w.add(source, a.dims, bound=max(9.0, 4 * a.bound))


@operation()
def condition(w, a):
    b = w.pick(lambda v: v.rank == 0)
    then = w.choose(["2.0 * {}", "tf.sin({})", "{} - tf.reduce_sum({})"])
    otherwise = w.choose(["-{}", "tf.tanh({})"])
    source = (
        f"tf.cond({b.name} > 0.1, lambda: {then.format(a.name, a.name)},"
        f" lambda: {otherwise.format(a.name)})"
    )
    w.sum_of(a, source, a.dims, range(a.rank))


@operation(lambda v: v.rank == 3 and isinstance(v.dims[1], int))
def scan(w, a):
    source = (
        f"tf.transpose(tf.scan(lambda state, one: tf.tanh(one + 0.5 * state),"
        f" tf.transpose({a.name}, [1, 0, 2])), [1, 0, 2])"
    )
    w.add(source, a.dims)


@operation(has_several_axes)
def mapped(w, a):
    function = w.choose(["tf.map_fn", "tf.vectorized_map"])
    bodies = ["tf.cumsum(one)", "tf.sort(one, 0)", "tf.sin(one)", "tf.tanh(one) * tf.tanh(s)"]
    w.sum_of(a, f"{function}(lambda one: {w.choose(bodies)}, {a.name})", a.dims, [1])


@operation(has_axes)
def either(w, a):
    b = w.pick(lambda v: v.dims[1:] == a.dims[1:] and v.rank == a.rank and v.name != a.name)
    rows = a.dims[0] if a.dims == b.dims else w.new_size()
    test = f"tf.reduce_sum(tf.tanh({a.name})) > 0.1"
    either = f"tf.cond({test}, lambda: {a.name}, lambda: {b.name})"
    w.add(either, (rows, *a.dims[1:]), bound=max(a.bound, b.bound))


@operation(has_axes)
def called(w, a):
    body = w.choose(["tf.reduce_sum(one, 0, True)", "tf.sin(one)", "one[::-1]"])
    dims = (1, *a.dims[1:]) if "sum" in body else a.dims
    w.sum_of(a, f"tf.function(lambda one: {body}, autograph=False)({a.name})", dims, [0])


@operation(has_axes)
def inner_gradient(w, a):
    body = w.choose(["tf.reduce_sum(tf.sin(one))", "tf.square(tf.reduce_mean(tf.tanh(one), 0))"])
    w.add(f"gradient(lambda one: {body}, {a.name})", a.dims, bound=4.0)


# State


def update(w):
    name = w.choose(VARIABLES)
    dims = INPUTS[name][0]
    a = w.pick(lambda v: v.dims == dims and v.name not in VARIABLES)
    method = w.choose(["assign_add", "assign_sub", "assign"])
    w.lines.append(f"{name}.{method}(tf.tanh({a.name}))")
    w.add(f"{name} + 0.0", dims, bound=3.0)


def update_in_body(w):
    name = w.choose(VARIABLES)
    dims = INPUTS[name][0]
    a = w.pick(lambda v: v.dims == dims and v.name not in VARIABLES)
    b = w.pick(lambda v: v.rank)
    kind = w.choose(["condition", "loop", "call", "compiled", "several calls"])
    other = w.choose(VARIABLES)
    w.add(f"changes('{kind}', {name}, {a.name}, {b.name}, {other})", b.dims, bound=9.0)


OPERATIONS += [update, update_in_body]


@dataclass(frozen=True)
class Program:
    """A program of a step.

    Args:
        lines: What it computes, line by line.
        results: The names of values that it returns, beside its loss and gradients.
        losses: The names of values of which the loss consists.
        twice: Whether gradients of gradients are computed, too.
    """

    lines: tuple
    results: tuple
    losses: tuple
    twice: bool

    @property
    def source(self):
        """The program as a function of the inputs."""
        return "\n".join(self._source())

    def _source(self):
        yield f"def program({', '.join(INPUTS)}):"
        sources = "[x, image, other, w, v, s]"
        indent = "    "
        for tape in ("outer", "tape") if self.twice else ("tape",):
            yield f"{indent}with tf.GradientTape() as {tape}:"
            indent += "    "
            yield f"{indent}{tape}.watch([x, image, other])"
        for line in self.lines:
            yield f"{indent}{line}"
        terms = [f"tf.reduce_sum(tf.sin({name}))" for name in self.losses]
        yield f"{indent}loss = {' + '.join(terms) or 'tf.reduce_sum(s)'}"
        if self.twice:
            yield f"        first = gradients_of(tape, loss, {sources})"
            yield "        norm = tf.add_n([tf.reduce_sum(tf.tanh(one)) for one in first])"
            yield f"    gradients = gradients_of(outer, norm, {sources})"
        else:
            yield f"    gradients = gradients_of(tape, loss, {sources})"
        yield "    for variable, change in zip([w, v, s], gradients[3:]):"
        yield "        variable.assign_sub(0.1 * tf.tanh(change))"
        results = [*self.results, "loss", "*gradients", "w + 0", "v + 0", "s + 0"]
        yield f"    return [{', '.join(results)}]"

    def __repr__(self):
        return self.source


def program_of(numbers, twice=False):
    """Return the program that lists of numbers stand for.

    Args:
        numbers: For each operation, which it is, and what it chooses.
        twice: Whether gradients of gradients are computed, too.
    """
    writer = Writer()
    for first, *rest in numbers:
        writer.choices = iter(rest)
        length = len(writer.lines)
        try:
            OPERATIONS[first % len(OPERATIONS)](writer)
        except CannotError:
            del writer.lines[length:]
    made = [value for value in writer.values if value.name.startswith("a")]
    used = {name for line in writer.lines for name in re.findall(r"\ba\d+\b(?! = )", line)}
    unused = [value for value in made if value.name not in used]
    results = dict.fromkeys(v.name for v in [*unused, *made[::3]])
    losses = [v.name for v in made if v.kind == "float" and (v in unused or v in made[::5])]
    return Program(tuple(writer.lines), tuple(results), tuple(losses), twice)


def programs(most=60):
    """Return a strategy of Hypothesis that draws programs."""
    number = st.integers(0, 255)
    line = st.tuples(number, number, number, number, number, number)
    lines = st.lists(line, min_size=1, max_size=most)
    return st.builds(program_of, lines, st.sampled_from([False, False, False, True]))
