"""Explanation of a planned step: divided and undivided shares of the work, and the user's lines.

`GraphPlan._decide_division` (`plan.py`) decides that an operation is not divided.
"""

from __future__ import annotations

import logging
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import cut_line, find_last_user_line
from .costs import Costs, Work
from .functions import called_graphs, kernel_name, traceback_lines
from .op_types import FUNCTION_CALLS
from .placements import Partial, Shard
from .plan import GraphPlan, bytes_of
from .tensor_facts import Ref

NOMINAL_ROWS = 64
"""The number of rows of a batch, where a step is explained without a batch."""
_LEAST_SHARE_TO_WARN = 0.05  # A smaller share of the work is not worth a message.
_TRACE_FILE = "/kdist/spmd/trace.py"
_OPTIMIZER_FILE = "/keras/src/optimizers/base_optimizer.py"
_DIGITS = re.compile(rb"\d")
_MOST_VALUES = 16  # Workers compare a constant of up to 16 values value by value.

_logger = logging.getLogger("kdist")


@dataclass
class Place:
    """A line of the user's program, or a layer, that needs the rows of all replicas.

    Attributes:
        name: Text of the line, such as `my_model.py:31: x = tf.sort(x, axis=0)`, or the layer.
        types: TensorFlow's types of the operations of the line or layer.
        flops: Floating-point operations on all rows of the batch, on every replica.
        gathered: Bytes of the tensors that are gathered for these operations.
    """

    name: str
    types: dict[str, None] = field(default_factory=dict)
    flops: float = 0.0
    gathered: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """Explanation of how a step was divided.

    Attributes:
        rows: The number of rows of a batch, for the numbers of this explanation.
        places: Lines and layers that need rows of all replicas, the most work first.
        rounds: The number of rounds with an exchange; the replicas wait for each other in each
            round.
        summed: Bytes of the tensors that are reduced over the replicas, by a sum or otherwise.
        gathered: Bytes of the gathered tensors, without weights.
        weights_gathered: Bytes of the divided weights that are gathered; a weight counts once for
            each gather.
    """

    replicas: int
    rows: int
    work: Work
    places: tuple[Place, ...]
    rounds: int
    summed: float
    gathered: float
    weights_gathered: float = 0.0

    @property
    def divided_share(self) -> float:
        """The divided share of the work on the batch, 0 to 1."""
        on_batch = self.work.divided + self.work.whole
        return self.work.divided / on_batch if on_batch else 1.0

    @property
    def most_speedup(self) -> float:
        """The largest speed-up over one replica, if time is proportional to operations."""
        alone = self.work.whole + self.work.repeated
        per_replica = self.work.divided / self.replicas + alone
        return self.work.total / per_replica if per_replica else 1.0

    def warning(self) -> str | None:
        """Return a line about the work that is not divided; `None` if there is little of it."""
        whole = 1 - self.divided_share
        places = [
            cut_line(f"{place.name} ({', '.join(place.types)})")
            for place in self.places
            if place.flops
        ]
        if whole < _LEAST_SHARE_TO_WARN or not places:
            return None
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        return (
            f"kdist: about {whole:.0%} of this step cannot be divided, so that every replica"
            " computes it for the whole batch; the result is right, but more replicas do not make"
            " this part faster (see kdist.explain):"
            f" {'; '.join(places[:3])}{more}"
        )


def explain_plan(
    plan: GraphPlan,
    rounds: int,
    exchanged: list[tf.Tensor],
    *,
    replicas: int,
    rows: int | None,
) -> Explanation:
    """Explain how a planned step was divided.

    `rows` is the number of rows to assume for a batch whose number of rows is unknown; `None`
    assumes `NOMINAL_ROWS`.
    """
    rows = rows or NOMINAL_ROWS
    costs = Costs(plan, rows)
    work = Work()
    places: dict[str, Place] = {}
    names: dict[str, Any] = {}
    seen: set[Ref] = set()
    for planned, done, needed in costs.each_operation():
        source = plan.find_origin(planned.op)
        names[source.name] = source
        # The update by a sparse gradient needs the gradient's rows of all replicas.
        if done.whole and _is_update(source):
            done = Work(done.divided, 0, done.repeated + done.whole)
        work += done
        gathered = [t for t in needed if t.ref() not in seen]
        seen.update(tensor.ref() for tensor in gathered)
        if not done.whole and not gathered:
            continue
        name = find_user_line(source, names)
        place = places.setdefault(name, Place(name))
        place.types[_find_type(planned.op)] = None
        place.flops += done.whole
        place.gathered += sum(map(costs.bytes, gathered))
    weights = [exchange.tensor for exchange in plan.all_exchanges() if exchange.is_weight]
    is_rows = {t.ref(): isinstance(plan.placement_of(t), Shard) for t in exchanged}
    return Explanation(
        replicas=replicas,
        rows=max(costs.totals, default=rows),
        work=work,
        places=tuple(sorted(places.values(), key=lambda p: (-p.flops, -p.gathered))),
        rounds=rounds,
        summed=sum(costs.bytes(t) for t in exchanged if not is_rows[t.ref()]),
        gathered=sum(costs.bytes(t) for t in exchanged if is_rows[t.ref()]),
        weights_gathered=sum(map(bytes_of, weights)),
    )


def _find_type(op: tf.Operation) -> str:
    """Return the type of an operation, or the name of the kernel of kdist that it calls."""
    return op.type if op.type not in FUNCTION_CALLS else kernel_name(op) or op.type


def _is_update(op: tf.Operation) -> bool:
    """Whether a Keras optimizer, or an optimizer of the user's own class, made an operation."""
    return any(path.endswith(_OPTIMIZER_FILE) for path, _ in traceback_lines(op))


def describe_plan(plan: GraphPlan) -> list[str]:
    """Describe the operations of a step; workers with the same plan get the same description."""
    return [
        f"{_describe_operation(planned.op)} at {planned.stage} as"
        f" {', '.join(map(_describe_placement, planned.decision.output_placements))}"
        for planned in plan.operations
    ]


def _describe_operation(op: tf.Operation) -> str:
    """Describe an operation: its type, its numbers, and a checksum of the functions that it calls.

    Texts with digits are left out, as every process numbers names in its own way; texts such as
    `SAME` and `NHWC` are compared.
    """
    parts = [f"{output.dtype.name}{output.shape}" for output in op.outputs]
    for name, attribute in sorted(op.node_def.attr.items()):
        kind = attribute.WhichOneof("value")
        if name.startswith("_") or name in ("seed", "seed2", "dtype", "T"):
            continue
        if kind == "tensor":
            parts += _describe_constant(attribute.tensor)
        elif kind in ("i", "f", "b"):
            parts.append(f"{name} {_format_number(getattr(attribute, kind))}")
        elif kind == "list" and (numbers := [*attribute.list.i, *attribute.list.f]):
            parts.append(f"{name} {' '.join(map(_format_number, numbers))}")
        elif kind == "s" and not _DIGITS.search(attribute.s):
            parts.append(f"{name} {attribute.s.decode()}")
    for graph in called_graphs(op):
        inside = "\n".join(map(_describe_operation, graph.get_operations()))
        parts.append(f"of {zlib.crc32(inside.encode()):x}")
    return f"{op.type}({', '.join(parts)})"


def _describe_constant(tensor: Any) -> list[str]:
    """Return texts of a constant: its values, or sums or a checksum of many; none for strings."""
    if tf.as_dtype(tensor.dtype) == tf.string:
        return []
    values = tf.make_ndarray(tensor).ravel()
    if values.dtype.kind not in "biufc":  # types such as bfloat16
        values = values.astype("float64")
    if values.size <= _MOST_VALUES:
        return [*map(_format_number, values.tolist())]
    if values.dtype.kind in "biu":
        return [f"{zlib.crc32(values.tobytes()):x}"]
    # The last digits of numbers may differ between machines: sums are compared, not bits.
    waves = np.cos(np.arange(values.size)) + 2.0
    return [f"{(abs(values) * waves).sum():.4g}", f"{(values * waves).sum():.4g}"]


def _format_number(number: complex) -> str:
    """Return a number with the digits that all machines compute alike."""
    return f"{number:.6g}" if isinstance(number, float | complex) else str(int(number))


def _describe_placement(placement: Any) -> str:
    if isinstance(placement, Shard):
        return f"shard({placement.axis}, {len(placement.rows.segments)})"
    return placement.reduction.name if isinstance(placement, Partial) else type(placement).__name__


def warn_once(message: str | None, warned: set[str]) -> None:
    """Log a message about a step, unless it was logged before."""
    if message is not None and message not in warned:
        warned.add(message)
        _logger.warning(message)


def find_user_line(op: tf.Operation, operations: dict[str, Any] | None = None) -> str:
    """Return the line of the user's step that made an operation, or else the layer.

    A gradient has the line of its forward operation, looked up by name in `operations`.
    """
    prefix, _, path = op.name.rpartition("gradient_tape/")
    if path != op.name:
        forward = path
        while forward and operations is not None:
            if prefix + forward in operations:
                return find_user_line(operations[prefix + forward])
            forward = forward.rpartition("/")[0]
    frames = traceback_lines(op)
    begins = max(
        (number for number, (path, _) in enumerate(frames) if path.endswith(_TRACE_FILE)),
        default=-1,
    )
    line = find_last_user_line(frames[begins + 1 :])
    scope = op.name.rpartition("/")[0]
    return line or scope or "gradients"
