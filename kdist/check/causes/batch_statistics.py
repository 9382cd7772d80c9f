"""Causes in layers whose result for a sample depends on the other samples."""

import keras

from ...batch_norm.convert import convert_batch_norm
from ...batch_norm.find import unsynchronized_batch_norms
from ..evidence import Evidence
from ..finding import Finding
from ..layer_calls import Mixing
from ..source_lines import calls_in, first, line_of_definition, name_of_call


def unsynchronized_batch_norm(evidence: Evidence) -> Finding | None:
    """Plain batch norm: each replica normalizes by its own samples."""
    model = evidence.received.model
    plain = unsynchronized_batch_norms(model) if model is not None else []
    if not plain:
        return None

    def synchronize(model: keras.Model) -> None:
        if unsynchronized_batch_norms(model):
            convert_batch_norm(model, to="synchronized")

    left = evidence.differences_with(synchronize, on_one=False)
    gap = evidence.gap_of_halves([evidence.name_of(norm) for norm in plain])
    if left is not None and len(left) < len(evidence.in_training or evidence.differences):
        result = "the model is equal" if not left else "fewer quantities differ"
        shown_by = f"with synchronized batch norm, {result}"
    elif gap:  # of a model that differs for other reasons too
        shown_by = (
            f"their result for half of a batch differs by {gap:.1g} from the same rows of the whole"
            " batch"
        )
    else:
        return None
    names = ", ".join(evidence.name_of(norm) for norm in plain[:3]) + ", …" * (len(plain) > 3)
    return Finding(
        name="unsynchronized_batch_norm",
        text=f"{names}: batch normalization uses the samples of each replica separately",
        shown_by=shown_by,
        fix="make the model with strategy.build(build), or call kdist.convert_batch_norm(model,"
        ' to="synchronized")',
    )


def mixing_layer(evidence: Evidence) -> list[Finding]:
    """A layer or the model of the user's computes with the mean, the maximum … of the batch."""
    return [
        Finding(
            name="mixing_layer",
            text=f"{_described(mixing.layer)} makes a sample's result depend on the other samples"
            " of the batch, and each replica has only its own",
            shown_by=f"its result for half of a batch differs by {mixing.gap:.1g} from the same"
            " rows of the whole batch",
            fix="put kdist.gather(...) around what is reduced over the samples: it returns the"
            " rows of all replicas"
            + "; write it in the call of a layer of yours"
            * (not mixing.line),
            line=mixing.line or _line_in_build(evidence, mixing),
        )
        for mixing in evidence.mixing
    ]


def _described(layer: keras.layers.Layer) -> str:
    kind = "the model" if isinstance(layer, keras.Model) else "the layer"
    return f"{kind} {layer.name} ({type(layer).__name__})"


def _line_in_build(evidence: Evidence, mixing: Mixing) -> str:
    """The line that puts an operation between the layers of a Functional model."""
    build = evidence.plan.build
    operation = evidence.mixing_operation(mixing)
    lines = calls_in(build, lambda call: name_of_call(call).rpartition(".")[2] == operation)
    return first(lines) or line_of_definition(build)
