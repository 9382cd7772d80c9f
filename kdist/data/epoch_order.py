"""`EpochOrder`: which samples are in a batch, another order in every epoch."""

from typing import Any

import tensorflow as tf

# A cipher of this many rounds shuffles. The four of `tf.random.experimental.index_shuffle` do not:
# of 60,000 samples, a batch has classes that lie one after the other in too even parts (their
# variance is a third of that of random parts).
_ROUNDS = 32


class EpochOrder:
    """A random order of samples in every epoch, of which any batch is found without the others.

    Args:
        count: Samples.
        batch_size: Samples of a batch; the last one of an epoch has the remaining ones.
        seed: Together with the epoch's number, determines its order.
    """

    def __init__(self, count: int, *, batch_size: int, seed: int) -> None:
        self.steps = -(-count // batch_size)
        self._count, self._batch_size, self._seed = count, batch_size, seed

    def __call__(self, number: Any) -> Any:
        """Return the samples of a batch.

        Args:
            number: Of the batch, int64: epoch * `steps` + place in the epoch.

        Returns:
            Indices of samples, int64.
        """
        epoch, place = number // self._steps64, number % self._steps64
        first = place * self._batch_size
        places = tf.range(first, tf.minimum(first + self._batch_size, self._count))
        # The cipher takes a few bits of each of three words, so that nearby words are no keys.
        # Epochs are negative as batches, which draw by the same seed, are not.
        key = tf.random.stateless_uniform(
            [3], tf.stack([tf.constant(self._seed, tf.int64), -1 - epoch]), None, None, tf.int32
        )
        last = tf.constant(self._count - 1, tf.int64)
        return tf.raw_ops.RandomIndexShuffle(index=places, seed=key, max_index=last, rounds=_ROUNDS)

    @property
    def _steps64(self) -> Any:
        return tf.constant(self.steps, tf.int64)
