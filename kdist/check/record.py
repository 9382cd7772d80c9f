"""`Record`: all that one training leaves behind, step by step, as NumPy arrays."""

import dataclasses
from typing import Any, Literal, get_args

import numpy as np

# In the order in which a step computes them: what comes first causes the others.
Kind = Literal[
    "initial weights",
    "loss",
    "state",
    "weights",
    "optimizer",
    "metric",
    "copies",
    "evaluate",
    "predictions",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Of larger variables a sample is compared, so that a large model's steps fit into memory.
_MOST_VALUES = 2**16


@dataclasses.dataclass(frozen=True)
class Item:
    """The place of a number or an array in a training.

    Attributes:
        step: From 1; 0 before the first, one more than the last for what comes after training.
        kind: What it is.
        index: Among those of its kind.
    """

    step: int
    kind: Kind
    index: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts items by when they are computed."""
        return self.step, KINDS.index(self.kind), self.index


@dataclasses.dataclass(kw_only=True)
class Record:
    """One training.

    Attributes:
        name: What trained, such as `2 replicas of kdist`.
        replicas: Their number.
        values: What was computed, by its place.
        names: Names of the items of a kind, such as the paths of the weights.
        layers: The layer of each variable, by the variable's name.
        warnings: Texts of the warnings of kdist.
        error: Why the training failed, in a line; empty if it did not.
        is_refused: Whether kdist itself refused to train, with the error as its reason.
        line: Line of the user's file in which it failed, as `my_model.py:12`.
        last_step: The last step that ended.
        is_scored: Whether the model was evaluated and asked for predictions after training.
        unevaluated: Why it could not be evaluated, in a line; empty if it could, or was not to be.
    """

    name: str
    replicas: int = 1
    values: dict[Item, Any] = dataclasses.field(default_factory=dict)
    names: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    layers: dict[str, str] = dataclasses.field(default_factory=dict)
    warnings: list[str] = dataclasses.field(default_factory=list)
    error: str = ""
    is_refused: bool = False
    line: str = ""
    last_step: int = 0
    is_scored: bool = True
    unevaluated: str = ""

    def add(self, step: int, kind: Kind, named: dict[str, Any]) -> None:
        """Add what a step has computed.

        Args:
            step: The step.
            kind: What is added.
            named: Numbers and arrays by name, in the same order in every step.
        """
        known = self.names.setdefault(kind, [])
        for name, value in named.items():
            if name not in known:
                known.append(name)
            self.values[Item(step, kind, known.index(name))] = kept(value)
        self.last_step = max(self.last_step, step)

    def name_of(self, item: Item) -> str:
        """The name of an item."""
        return self.names[item.kind][item.index]


def kept(value: Any) -> Any:
    """Return what is kept of an array: all of it or, if it is large, a sample and its mean.

    Args:
        value: Of any shape.

    Returns:
        An array of float64, or of the type that it has if that is no number.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        return array.copy()
    array = array.astype("float64")  # also a copy: a variable's memory is written again
    if array.size <= _MOST_VALUES:
        return array
    flat = array.reshape(-1)
    return np.append(flat[:: -(-flat.size // _MOST_VALUES)], flat.mean())
