"""What layers compute in one step, and whether a row of it depends on other samples."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..distribute.gathering import gathering_by
from .source_lines import line_of_definition, line_of_operation

_REDUCTIONS = ("Mean", "Sum", "Max", "Min", "Prod", "All", "Any", "L2Loss", "ArgMax", "ArgMin")
_CALLS_KEPT = 2


@dataclasses.dataclass(kw_only=True)
class LayerCall:
    """A call of a layer.

    Attributes:
        layer: The layer, or the model itself, or an operation between its layers.
        args: Its arguments.
        options: Its named arguments.
        outputs: What it returned.
    """

    layer: Any
    args: Any
    options: dict[str, Any]
    outputs: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixing:
    """A layer whose result for a sample depends on the other samples of the batch.

    Attributes:
        call: Of the layer, or of the model itself.
        gap: By how much its rows differ when it gets half of the samples.
        line: Where it mixes them; empty if that is not known.
    """

    call: LayerCall
    gap: float
    line: str

    @property
    def layer(self) -> keras.layers.Layer:
        """The layer."""
        layer: keras.layers.Layer = self.call.layer
        return layer


def observe_calls(model: keras.Model, run: Callable[[], Any]) -> list[LayerCall]:
    """Return the calls of a model and of its layers while `run` runs, eagerly.

    Args:
        model: The model.
        run: What calls the layers, such as a training step.
    """
    calls: list[LayerCall] = []
    with contextlib.ExitStack() as stack:
        layers = [*_upstream.flatten_layers(model), model]
        for layer in {id(layer): layer for layer in layers}.values():  # each once
            stack.enter_context(observed(layer, calls))
        run()
    return calls


@contextlib.contextmanager
def observed(layer: Any, calls: list[LayerCall]) -> Iterator[None]:
    """Collect the calls of a layer or an operation during the block.

    Args:
        layer: What is called.
        calls: Its calls are added to these.
    """
    original, own = layer.call, vars(layer).get("call")

    def call(*args: Any, **options: Any) -> Any:
        outputs = original(*args, **options)
        if sum(one.layer is layer for one in calls) < _CALLS_KEPT:
            calls.append(LayerCall(layer=layer, args=args, options=options, outputs=outputs))
        return outputs

    object.__setattr__(layer, "call", call)
    try:
        yield
    finally:
        if own is None:
            object.__delattr__(layer, "call")
        else:
            object.__setattr__(layer, "call", own)


def mixing_layers(
    model: keras.Model, calls: list[LayerCall], rows: int, tolerance: float
) -> list[Mixing]:
    """Find the innermost layers whose rows change when they get only half of the samples.

    Batch norms that kdist synchronizes are none. Layers that draw random numbers are judged as in
    inference, as half of the samples would get other draws.

    Args:
        model: The model.
        calls: Its layers' calls on a batch.
        rows: Samples of the batch.
        tolerance: What rounding may do to a row.
    """
    found: dict[int, Mixing] = {}
    with _frozen_batch_norms(model), kept_variables(model):
        for call in calls:
            if id(call.layer) in found or _is_synchronized(call.layer):
                continue
            gap = gap_of_halves(call, rows) or gap_of_halves(_in_inference(call), rows)
            if gap > tolerance:
                line = _mixing_line(call, rows)
                found[id(call.layer)] = Mixing(call=call, gap=gap, line=line)
    outer = [key for key, mixing in found.items() if _has_inner(mixing.layer, found)]
    return [mixing for key, mixing in found.items() if key not in outer]


def _in_inference(call: LayerCall) -> LayerCall:
    options = {**call.options, "training": False} if "training" in call.options else call.options
    return dataclasses.replace(call, options=options)


def _has_inner(layer: keras.layers.Layer, found: dict[int, Mixing]) -> bool:
    return any(id(part) in found and part is not layer for part in _upstream.flatten_layers(layer))


def _is_synchronized(layer: keras.layers.Layer) -> bool:
    """Whether kdist synchronizes this batch norm: one with a `call` of the user's it cannot."""
    if not isinstance(layer, keras.layers.BatchNormalization):
        return False
    return not line_of_definition(type(layer).call)


def gap_of_halves(call: LayerCall, rows: int) -> float:
    """Return by how much the rows of the first half differ from the same rows of the whole batch.

    Args:
        call: Of a layer.
        rows: Samples of the batch.
    """
    half = rows // 2
    gathered: list[Any] = []

    def keep(values: Any) -> Any:
        gathered.append(values)
        return values

    try:
        with gathering_by(keep):
            whole = _rows_of(run_call(call, rows), rows, half)
        again = _rows_of(run_call(call, rows), rows, half)
        # What the layer gathers has the rows of the whole batch, as on a replica.
        with gathering_by(lambda _: gathered.pop(0)):
            part = _rows_of(run_call(call, half, of=rows), half, half)
    except Exception:  # a layer of the user's that takes batches of one size only
        return 0.0
    if _gap(whole, again) > 0:
        return 0.0  # random, or with a state
    return _gap(whole, part)


def run_call(call: LayerCall, rows: int, of: int | None = None) -> Any:
    """Call a layer again, with the same arguments.

    Args:
        call: Of the layer.
        rows: The first samples that it gets.
        of: Samples of the batch; `None` if it is to get all.
    """

    def cut(leaf: Any) -> Any:
        has_rows = isinstance(leaf, tf.Tensor) and leaf.shape.rank and leaf.shape[0] == of
        return leaf[:rows] if has_rows else leaf

    args, options = (call.args, call.options)
    if of is not None:
        args, options = keras.tree.map_structure(cut, (args, options))
    return call.layer.call(*args, **options)


def _rows_of(outputs: Any, rows: int, kept: int) -> list[Any]:
    return [
        np.asarray(leaf[:kept], "float64")
        for leaf in keras.tree.flatten(outputs)
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank and leaf.shape[0] == rows
    ]


def _gap(one: list[Any], other: list[Any]) -> float:
    gaps = [
        float(np.nanmax(np.abs(a - b), initial=0.0))
        / max(1.0, float(np.nanmax(np.abs(a), initial=0)))
        for a, b in zip(one, other, strict=False)
        if a.shape == b.shape
    ]
    return max(gaps, default=0.0)


def _mixing_line(call: LayerCall, rows: int) -> str:
    """The line of the layer that reduces over the samples; where it is unknown, its `call`."""
    definition = line_of_definition(type(call.layer).call) or line_of_definition(type(call.layer))
    leaves = keras.tree.flatten((call.args, call.options))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, tf.Tensor)]

    def compute(*tensors: Any) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        args, options = keras.tree.pack_sequence_as((call.args, call.options), given)
        return call.layer.call(*args, **options)

    def double(values: Any) -> Any:
        return keras.tree.map_structure(lambda leaf: tf.concat([leaf, leaf], 0), values)

    try:
        # What is gathered has other rows than the batch, and is not what mixes.
        with gathering_by(double):
            step = tf.function(compute).get_concrete_function(*(leaves[i] for i in places))
    except Exception:  # what runs eagerly need not run in a graph
        return definition
    for operation in step.graph.get_operations():
        if operation.type in _REDUCTIONS and _reduces_rows(operation, rows):
            line = line_of_operation(operation)
            if line:
                return line
    return definition


def _reduces_rows(operation: Any, rows: int) -> bool:
    source = operation.inputs[0]
    if not source.shape.rank or source.shape[0] != rows:
        return False
    axes = tf.get_static_value(operation.inputs[1]) if len(operation.inputs) > 1 else 0
    return axes is not None and 0 in np.atleast_1d(axes) % source.shape.rank


@contextlib.contextmanager
def _frozen_batch_norms(model: keras.Model) -> Iterator[None]:
    norms = [layer for layer in _upstream.flatten_layers(model) if _is_synchronized(layer)]
    before = [norm.trainable for norm in norms]
    for norm in norms:
        norm.trainable = False
    try:
        yield
    finally:
        for norm, was in zip(norms, before, strict=True):
            norm.trainable = was


@contextlib.contextmanager
def kept_variables(model: keras.Model) -> Iterator[None]:
    """Restore all variables of a model, its metrics and optimizers after the block."""
    metrics = [v for metric in model.metrics for v in metric.variables]
    optimizers = [v for one in _upstream.optimizers_of(model) for v in one.variables]
    variables = list({id(v): v for v in [*model.variables, *metrics, *optimizers]}.values())
    before = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
