"""A loss that reads what a layer has stored in the forward pass."""

from typing import Any

import keras

from ... import _upstream
from ..evidence import Evidence
from ..finding import Finding
from ..layer_calls import kept_variables
from ..precision import keras_in
from ..source_lines import line_of_definition


def stored_rows(evidence: Evidence) -> Finding | None:
    """A `compute_loss` that reads the rows of one replica from an attribute."""
    model = evidence.one.model
    line = "" if model is None else line_of_definition(type(model).compute_loss)
    gap = _gap_of_stored(evidence) if line else 0.0
    if not gap:
        return None
    return Finding(
        name="stored_rows",
        text=f"compute_loss of {type(model).__name__} reads what a layer has stored of each"
        " replica's own samples; only its arguments have the rows of all replicas",
        shown_by=f"with the same arguments, it differs by {gap:.1g} after the model was called with"
        " half of the batch",
        fix="put kdist.gather(...) around what it reads from attributes",
        line=line,
    )


def _gap_of_stored(evidence: Evidence) -> float:
    """By how much the loss changes if the forward pass before it had half of the samples."""
    model, batches = evidence.one.model, evidence.plan.batches
    size = batches.batch_size // 2 * 2
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batches.rows(0, size))
    half = keras.tree.map_structure(lambda leaf: leaf[: size // 2], x)

    def loss_after(inputs: Any) -> tuple[float, float]:
        _upstream.call_model(model, inputs, training=False)
        added = float(sum(model.losses))  # of this forward pass, as kdist knows
        loss = _upstream.compute_loss(model, x, y, outputs, weight, training=False)
        return float(loss), float(loss) - added

    try:
        with keras_in(evidence.plan.asked), kept_variables(model):
            outputs = _upstream.call_model(model, x, training=False)
            whole, same, part = loss_after(x), loss_after(x), loss_after(half)
    except Exception:  # a model with a step of its own need not take these arguments
        return 0.0
    gap = min(abs(a - b) for a, b in zip(whole, part, strict=True))
    is_random = whole != same
    limit = evidence.precision.metrics_tolerance * max(1.0, abs(whole[0]))
    return gap if gap > limit and not is_random else 0.0
