"""Sharding rules: one function per kind of operation, which decides how it is divided.

To add one, write a function below `@rule("OpType", ...)` in the file of its family, and add a row
to its test. Importing this package registers all rules.
"""

from . import (
    contractions,
    control_flow,
    elementwise,
    indexing,
    kernels,
    lists,
    ragged,
    random,
    recurrent,
    reductions,
    rowwise,
    shapes,
    slices,
    state,
)

__all__ = [
    "contractions",
    "control_flow",
    "elementwise",
    "indexing",
    "kernels",
    "lists",
    "ragged",
    "random",
    "recurrent",
    "reductions",
    "rowwise",
    "shapes",
    "slices",
    "state",
]
