"""The iterators that Keras makes in the epochs of a fit, and what it reads of them."""

from dataclasses import dataclass


@dataclass
class MadeIterator:
    """An iterator over the training data.

    Attributes:
        made_in: The epoch in which it is made, counted from the beginning of the fit.
        read_from: The epoch that reads it first; `None` for one that no epoch reads.
        batches: Batches read; `None` for all there are.
    """

    made_in: int
    read_from: int | None = None
    batches: int | None = 0


class IteratorsMade:
    """The iterators of a fit's first epochs.

    Args:
        epochs: Epochs that have ended.
        batches: Batches of the data; `None` where that is not known, or without end.
        steps_per_epoch: The argument of `fit`.
        steps_per_execution: Batches that are read at a time.
        spares: Whether an iterator is made at the end of an epoch, though the next makes its own.

    Attributes:
        made: All of them, in order.
        current: The one among them that the next epoch reads on; `None` where it makes another.
    """

    def __init__(
        self,
        epochs: int,
        *,
        batches: int | None,
        steps_per_epoch: int | None,
        steps_per_execution: int,
        spares: bool,
    ) -> None:
        self.made: list[MadeIterator] = []
        self.current: MadeIterator | None = None
        self._batches, self._steps_per_epoch = batches, steps_per_epoch
        self._steps_per_execution, self._spares = steps_per_execution, spares
        self._steps_seen = 0
        for epoch in range(epochs):
            self._read_epoch(epoch)
        if steps_per_epoch is None:
            self.current = None

    def _read_epoch(self, epoch: int) -> None:
        if not self._steps_per_epoch and not self._batches:
            self.made.append(MadeIterator(epoch, epoch, None))
            return
        if self.current is None or self._steps_per_epoch is None:
            self._make(epoch)
        executions = self._executions()
        if executions and self.current is not None and self.current.batches is not None:
            read = executions * self._steps_per_execution
            if self.current.read_from is None:
                self.current.read_from = epoch
            self.current.batches += read
            self._steps_seen += read
        if self._is_over() and (self._spares or self._steps_per_epoch):
            self._make(epoch)

    def _executions(self) -> int:
        steps = self._steps_per_epoch or self._batches or 0
        executions = -(-steps // self._steps_per_execution)
        if self._batches:
            left = -(-(self._batches - self._steps_seen) // self._steps_per_execution)
            executions = min(executions, left)
        return executions

    def _is_over(self) -> bool:
        return bool(self._batches) and self._steps_seen >= (self._batches or 0)

    def _make(self, epoch: int) -> None:
        self.current = MadeIterator(epoch)
        self.made.append(self.current)
        self._steps_seen = 0
