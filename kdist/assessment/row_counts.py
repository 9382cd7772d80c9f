"""`RowCounts`: which rows every replica gets, seen where the strategy divides a batch."""

from typing import Any

import numpy as np
import tensorflow as tf

# Of the sum that stands for a row: sums of the same numbers in another order differ by less.
_DIGITS = 9


class RowCounts:
    """Counts the rows of each replica in the steps of a strategy, from `watch` on.

    Rows are known by a weighted sum of their numbers, so that one which several replicas get is
    found.

    Attributes:
        trained: Rows of each replica that were trained on since the last `begin_training`.
        largest: Rows of the largest step of training, of all replicas.
        tested: Rows that were evaluated since the last `begin_test`.
    """

    def __init__(self) -> None:
        self.trained: list[int] = []
        self.largest = self.tested = 0
        self._sums: list[list[np.ndarray]] = []

    def begin_training(self) -> None:
        """Forget the rows that were trained on."""
        self.trained, self._sums = [0] * len(self.trained), [[] for _ in self.trained]

    def begin_test(self) -> None:
        """Forget the rows that were evaluated."""
        self.tested = 0

    def repeated(self) -> int:
        """Number of rows of a replica that another one got too."""
        seen: set[float] = set()
        count = 0
        for parts in self._sums:
            own = np.unique(np.round(np.concatenate([np.empty(0), *parts]), _DIGITS)).tolist()
            count += sum(one in seen for one in own)
            seen.update(own)
        return count

    def watch(self, strategy: tf.distribute.Strategy) -> None:
        """Look at what the steps of a strategy get that train or evaluate a model.

        Args:
            strategy: The strategy, before its steps are traced.
        """
        replicas = strategy.num_replicas_in_sync
        self.trained += [0] * (replicas - len(self.trained))
        self._sums += [[] for _ in range(replicas - len(self._sums))]
        if "run" in vars(strategy):
            return
        run, add = strategy.run, {"train_step": self._add_trained, "test_step": self._add_tested}

        def observed(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
            leaves = tf.nest.flatten((args, kwargs or {}))
            count = add.get(getattr(fn, "__name__", ""))
            if leaves and count is not None:
                sums = [_sums(part) for part in strategy.experimental_local_results(leaves[0])]
                with tf.device("CPU:0"):
                    tf.numpy_function(count, sums, [])  # whenever the traced step runs
            return run(fn, args=args, kwargs=kwargs, options=options)

        strategy.run = observed

    def _add_trained(self, *sums: np.ndarray) -> None:
        for replica, part in enumerate(sums):
            self.trained[replica] += len(part)
            self._sums[replica].append(np.array(part))
        self.largest = max(self.largest, sum(map(len, sums)))

    def _add_tested(self, *sums: np.ndarray) -> None:
        self.tested += sum(map(len, sums))


def _sums(rows: Any) -> Any:
    """A number for each row, the same for the same row."""
    flat = tf.reshape(rows, (tf.shape(rows)[0], tf.reduce_prod(tf.shape(rows)[1:])))
    weights = tf.cos(tf.range(tf.shape(flat)[1], dtype=tf.float64) * 12.9898)
    return tf.linalg.matvec(tf.cast(flat, tf.float64), weights)
