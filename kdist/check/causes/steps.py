"""Causes in a `train_step` of the user's, and in numbers that kdist cannot read."""

import ast

import keras

from ... import _upstream
from ...distribute.model_warnings import OF_GRADIENT, OF_NUMBER, OF_PAIRS
from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import calls_in, first, line_of_definition
from .state import line_of_warning

_OUTSIDE = "use keras.ops.mean(...), outside of loops and conditions"
_OF_WHOLE = "put kdist.gather(...) around the values per sample that it is computed from"


def opaque_step(evidence: Evidence) -> Finding | None:
    """A step that is a `@tf.function`, or no method."""
    model = evidence.one.model
    if model is None:
        return None
    opaque = [
        name
        for name in _upstream.overridden_steps(model)
        if _upstream.custom_step(getattr(model, name)) is None
    ]
    if not opaque:
        return None
    return Finding(
        name="opaque_step",
        text=f"the {' and '.join(opaque)} of {type(model).__name__} is a @tf.function or no"
        " method, so kdist cannot adapt it",
        shown_by="its type",
        fix="write it as a method of the model without @tf.function: Keras compiles it anyway",
        line=line_of_definition(type(model)),
    )


def eager_step(evidence: Evidence) -> Finding | None:
    """`run_eagerly=True`, where there is no graph to read."""
    model = evidence.one.model
    if model is None or not model.run_eagerly:
        return None

    def compile_steps(model: keras.Model) -> None:
        model.run_eagerly = False

    left = evidence.differences_with(compile_steps)
    if left is None or len(left) >= len(evidence.in_training or evidence.differences):
        return None
    return Finding(
        name="run_eagerly",
        text="with run_eagerly=True there is no graph to read, so kdist takes every number for a"
        " mean over the samples, also what is a sum",
        shown_by="without run_eagerly, "
        + ("the model is equal" if not left else "fewer quantities differ"),
        fix="remove run_eagerly=True from compile, or use it on one replica only",
        line=first(calls_in(evidence.plan.build, _runs_eagerly)),
    )


def _runs_eagerly(call: ast.Call) -> bool:
    return any(keyword.arg == "run_eagerly" for keyword in call.keywords)


def changed_gradients(evidence: Evidence) -> list[Finding]:
    """Gradients that are clipped or normalized before they are summed over replicas."""
    return [
        Finding(
            name="changed_gradients",
            text="each replica's own gradients are changed before they are summed over replicas:"
            " their norm is not that of the global batch's gradients",
            shown_by="kdist's reading of the step's graph",
            fix="first sum them: gradients = kdist.sum_gradients(tape.gradient(loss, variables)),"
            " or let the optimizer clip (clipnorm=, global_clipnorm=)",
            line=line_of_warning(text),
        )
        for text in evidence.warned(OF_GRADIENT)
    ]


def number_of_rows(evidence: Evidence) -> list[Finding]:
    """A number that kdist cannot combine: a root, a ratio, or a sum in a loop."""
    warnings = evidence.warned(OF_NUMBER)
    if not warnings:
        return []
    is_sum = evidence.loss_kind == "sum"
    measured = {
        "neither": ": the loss of a batch is neither the mean nor the sum of those of its halves",
        "sum": ": the loss of a batch is the sum of those of its halves",
    }
    return [
        Finding(
            name="loss_is_a_sum" if is_sum else "neither_mean_nor_sum",
            text="this number of the loss or the logs is "
            + (
                "a sum over the samples, which kdist could not see"
                if is_sum
                else "neither a mean nor a sum over the samples, so the numbers of the replicas"
                " cannot be combined to it"
            ),
            shown_by="kdist's reading of the step's graph" + measured.get(evidence.loss_kind, ""),
            fix=_OUTSIDE if is_sum else _OF_WHOLE,
            line=line_of_warning(text),
        )
        for text in warnings
    ]


def values_of_several_samples(evidence: Evidence) -> list[Finding]:
    """Values that depend on several samples each, in a step or a loss."""
    if evidence.mixing:  # a layer that is named itself
        return []
    return [
        Finding(
            name="values_of_several_samples",
            text="each of these values depends on several samples, and each replica computes them"
            " from its own",
            shown_by="kdist's reading of the step's graph",
            fix="put kdist.gather(...) around the values that they are computed from",
            line=line_of_warning(text),
        )
        for text in evidence.warned(OF_PAIRS)
    ]


def unread_loss(evidence: Evidence) -> Finding | None:
    """A loss of a custom step that is a sum or neither, and that kdist could not read."""
    if not evidence.has_custom_step() or evidence.loss_kind not in ("sum", "neither"):
        return None
    if not evidence.first_kinds & {"loss", "weights", "metric"}:
        return None
    is_sum = evidence.loss_kind == "sum"
    return Finding(
        name="loss_is_a_sum" if is_sum else "neither_mean_nor_sum",
        text="the loss of train_step is a sum over the samples, which kdist could not see"
        if is_sum
        else "the loss of train_step is neither a mean nor a sum over the samples",
        shown_by=f"the loss of a batch is {'the' if is_sum else 'neither the mean nor the'} sum of"
        " that of its two halves",
        fix=_OUTSIDE if is_sum else _OF_WHOLE,
        line=line_of_definition(type(evidence.one.model).train_step),
    )
