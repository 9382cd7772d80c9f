"""`Computed`: a tensor, with what is known of the inputs of its operation."""

import dataclasses
from collections.abc import Callable
from typing import Any

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

    def has_rows(self, tensor: Any) -> bool:
        """Whether a tensor may have a row per sample, by its shape."""
        rank = tensor.shape.rank
        return rank is None or (rank > 0 and tensor.shape[0] in (None, self.static_rows))
