"""Causes in optimizers."""

import inspect
from typing import Any

import keras

from ... import _upstream
from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import line_of_definition, line_of_operation
from ..step_graph import differing_constants


def python_optimizer_state(evidence: Evidence) -> Finding | None:
    """An optimizer of the user's that keeps its state in Python, or mixes replicas otherwise."""
    model = evidence.one.model
    optimizers = _upstream.optimizers_of(model) if model is not None else []
    custom = [one for one in optimizers if line_of_definition(type(one))]
    if not custom:
        return None

    def replace(model: keras.Model) -> None:
        for name, value in list(vars(model).items()):
            if isinstance(value, keras.optimizers.Optimizer):
                setattr(model, name, keras.optimizers.SGD(0.01))
        if isinstance(getattr(model, "optimizer", None), keras.optimizers.Optimizer):
            model.optimizer = keras.optimizers.SGD(0.01)

    left = evidence.differences_with(replace)
    if left is None or left:
        return None
    (optimizer, *_) = custom
    kept = ", ".join(_python_state(optimizer))
    what = f"in Python attributes ({kept}), of which" if kept else "such that"
    return Finding(
        name="optimizer_state",
        text=f"the optimizer {type(optimizer).__name__} keeps state {what} the replicas do not"
        " each have their own copy",
        shown_by="with keras.optimizers.SGD in its place, the model is equal",
        fix="keep all state in variables, made in build(self, variables) by"
        " self.add_variable_from_reference(variable, name)",
        line=counting_line(evidence) or line_of_definition(type(optimizer)),
    )


def counting_line(evidence: Evidence) -> str:
    """A line of the optimizer with a number that Python computes while the step is traced."""
    if evidence.traces is None:
        return ""
    model = evidence.one.model
    files = {inspect.getsourcefile(type(one)) for one in _upstream.optimizers_of(model)}
    for operation in differing_constants(*evidence.traces):
        for frame in operation.traceback:
            if frame.filename in files and frame.name in ("update_step", "apply"):
                return line_of_operation(operation)
    return ""


def _python_state(optimizer: Any) -> list[str]:
    """Attributes that the user's class has beyond those of Keras's optimizers."""
    usual = set(vars(keras.optimizers.SGD(0.1)))
    return [
        name
        for name, value in vars(optimizer).items()
        if name not in usual
        and isinstance(value, dict | list | int | float)
        and not (isinstance(value, list) and all(isinstance(v, keras.Variable) for v in value))
    ]
