"""`Computed`: a tensor, with what is known of the inputs of its operation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .reduction_kinds import Kind


@dataclasses.dataclass(frozen=True)
class Computed:
    """A tensor, with what is known of the inputs of its operation.

    Attributes:
        tensor: The result.
        kind_of: Returns the kind of an input.
        static_rows: Rows of this replica, if known when the step is traced.
    """

    tensor: Any
    kind_of: Callable[[Any], Kind]
    static_rows: int | None

    @property
    def operation(self) -> Any:
        """The operation that computes it."""
        return self.tensor.op

    @property
    def inputs(self) -> Any:
        """The operation's inputs."""
        return self.tensor.op.inputs

    def of(self, index: int) -> Kind:
        """The kind of one input."""
        return self.kind_of(self.inputs[index])

    def of_all(self) -> set[Kind]:
        """The kinds of all inputs."""
        return set(map(self.kind_of, self.inputs))

    def keeps_rows(self) -> bool:
        """Whether the result may have the rows of an input, by its shape."""
        return self.has_rows(self.tensor) or any(
            self.kind_of(part) is Kind.ROWS and part.shape[:1] == self.tensor.shape[:1]
            for part in self.inputs
        )

    def is_without_samples(self, part: Any) -> bool:
        """Whether these are constant rows that are joined to those of the samples."""
        operation = self.operation
        if (
            operation.type != "ConcatV2"
            or part is operation.inputs[-1]
            or part.shape.rank in (None, 1)
        ):
            return False
        if tf.get_static_value(operation.inputs[-1]) not in (0, -part.shape.rank):
            return False
        rows = part.shape[0]
        is_known = rows is not None and self.kind_of(part) is Kind.SAME
        return is_known and bool(not self.static_rows or rows % self.static_rows)

    def has_rows(self, tensor: Any) -> bool:
        """Whether a tensor may have a row per sample, by its shape."""
        rank = tensor.shape.rank
        return rank is None or (rank > 0 and tensor.shape[0] in (None, self.static_rows))
