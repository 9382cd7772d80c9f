"""Sharding rules: one function per kind of operation, which says how it is divided.

A rule claims only what follows from the operation's definition. It gets an `Operation` and returns
a `Decision`, or `None` where it is not certain: then the operation is computed whole on every
replica, which is always right.

To add one, write a function below `@rule("OpType", ...)` in the file of its family, and add a row
to its test. The families are `elementwise`; `reductions` along axes, and what goes along one, as
`Cumsum` and `Roll`; `contractions`, products of matrices; `rowwise`, each sample on its own, as
convolutions, pooling and losses of logits; `recurrent`, cuDNN's LSTM and GRU; `shapes` and
`slices`; `indexing`, gather and scatter; `ragged`, texts and rows of different lengths; `random`;
`lists` of loops; `control_flow`, loops, conditions and calls; `state`, variables; and `kernels`
that kdist has itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..functions import kernel_of

RULES: dict[str, Callable[..., Any]] = {}


def rule(*types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the rule of these types of operations."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in types:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
        return function

    return register


# They register their rules by `rule`.
for _family in (
    "elementwise",
    "reductions",
    "contractions",
    "rowwise",
    "recurrent",
    "shapes",
    "slices",
    "indexing",
    "ragged",
    "random",
    "lists",
    "control_flow",
    "state",
    "kernels",
):
    importlib.import_module(f".{_family}", __name__)


def find_rule(op: Any) -> Callable[..., Any] | None:
    """Return the rule of an operation's type, or of the kernel that it calls."""
    if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
        kernel = kernel_of(op)
        return RULES.get(f"kernel:{kernel}" if kernel else "XlaCall")
    return RULES.get(op.type)


__all__ = ["RULES", "find_rule", "rule"]
