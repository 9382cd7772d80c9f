"""Causes in Python functions that TensorFlow calls."""

from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import line_of_operation


def python_function(evidence: Evidence) -> list[Finding]:
    """`tf.py_function` and the like: each replica calls it with its own samples."""
    if evidence.traces is None:
        return []
    operations = evidence.traces[0].python_functions()
    lines = dict.fromkeys(filter(None, map(line_of_operation, operations)))
    is_shown = bool(lines) and evidence.changes_when_repeated
    return [
        Finding(
            name="python_function",
            text="a Python function is called in the step, by each replica with its own samples:"
            " what it counts, keeps or draws depends on their number",
            shown_by="the same step, repeated with the same variables and seed, gives another loss"
            if is_shown
            else "nothing but that the traced step calls it",
            fix="write it with keras.ops and keep what it remembers in a variable of the layer"
            " (self.add_weight)",
            line=line,
            level="fault" if is_shown else "suspect",
        )
        for line in lines
    ]
