"""Causes in what layers and steps keep from one step to the next."""

import keras

from ... import _upstream
from ...distribute.model_warnings import OF_WRITE
from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import line_of_definition, line_of_operation
from ..step_graph import differing_constants
from .draws import python_while_tracing
from .optimizers import counting_line


def python_attribute(evidence: Evidence) -> list[Finding]:
    """A Python attribute that changes while the step is traced, such as a counter."""
    if evidence.traces is None:
        return []
    one, other = evidence.traces
    if one.drew or counting_line(evidence):
        return []
    # Fractions may be drawn instead.
    known = {finding.line for finding in python_while_tracing(evidence)}
    found: list[Finding] = []
    for operation in differing_constants(one, other):
        line = line_of_operation(operation)
        if line and line not in known and not any(finding.line == line for finding in found):
            found.append(
                Finding(
                    name="python_attribute",
                    text="this number comes from a Python attribute that changes when the step is"
                    " traced, which happens once for each replica, not once a step",
                    shown_by="two traces of the same step have different constants",
                    fix="keep it in a variable: self.add_weight(shape=(), trainable=False), and"
                    " change it with assign",
                    line=line,
                )
            )
    return found


def written_value(evidence: Evidence) -> list[Finding]:
    """A custom step writes what each replica has computed from its own samples."""
    return [
        Finding(
            name="written_value",
            text="a value of each replica's own samples is written into a variable, so its copies"
            " differ",
            shown_by="kdist's reading of the step's graph",
            fix="compute it from the samples of all replicas: kdist.sum_gradients(gradients), or"
            " kdist.gather(...) around values",
            line=line_of_warning(text),
        )
        for text in evidence.warned(OF_WRITE)
    ]


def differing_layer_state(evidence: Evidence) -> list[Finding]:
    """A layer writes into its state what each replica has computed from its own samples."""
    if evidence.mixing or evidence.warned(OF_WRITE):
        return []  # what it keeps follows from there
    states = evidence.one.record.names.get("state", [])
    names = {d.layer for d in evidence.differences if d.kind == "copies" and d.name in states}
    layers = [evidence.one.model, *_upstream.flatten_layers(evidence.one.model)]
    return [
        Finding(
            name="layer_state",
            text=f"the state of {layer.name} ({type(layer).__name__}) is computed from each"
            " replica's own samples, so it differs between replicas, and only the first one's is"
            " saved",
            shown_by="the replicas' copies of its variables differ after training",
            fix="compute it from kdist.gather(...) of the values",
            line=line_of_definition(type(layer)),
        )
        for layer in layers
        if layer.name in names and not isinstance(layer, keras.layers.BatchNormalization)
    ]


def line_of_warning(text: str) -> str:
    """The line that a warning of kdist begins with."""
    return text.partition("\n")[0]
