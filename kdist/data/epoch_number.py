"""`EpochNumber`: which epoch the iterators of a data set give, kept where tf.data reads it."""

from typing import Any

import tensorflow as tf

# Where tf.data works. TensorFlow would put a number on the first GPU.
_HOST = "/CPU:0"
_COUNTED, _HELD = 0, 1
_NONE = -1


class EpochNumber:
    """The number of an epoch, from 0: held, or counted by the iterators that begin.

    It is kept in a table, as a variable would become one for each replica within the scope of a
    strategy.
    """

    def __init__(self) -> None:
        with tf.device(_HOST):
            self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, _NONE)
        self._set(_COUNTED, 0)
        self._set(_HELD, _NONE)

    def hold(self, epoch: int) -> None:
        """Have every iterator that begins give this epoch."""
        self._set(_HELD, epoch)

    def release(self) -> None:
        """Have the iterators that begin count again."""
        self._set(_HELD, _NONE)

    def count_from(self, epoch: int) -> None:
        """Have the next iterator that begins give this epoch, the one after it the next."""
        self._set(_COUNTED, epoch)

    def held(self) -> Any:
        """The epoch that is held, int64, for a function of a data set."""
        return tf.ensure_shape(self._table.lookup(tf.constant(_HELD, tf.int64)), ())

    def next(self) -> Any:
        """The epoch of an iterator that begins, int64, for a function of a data set."""
        held = self.held()
        counted = tf.ensure_shape(self._table.lookup(tf.constant(_COUNTED, tf.int64)), ())
        is_held = held > _NONE
        self._table.insert(tf.constant(_COUNTED, tf.int64), tf.where(is_held, counted, counted + 1))
        return tf.where(is_held, held, counted)

    def _set(self, name: int, epoch: int) -> None:
        with tf.device(_HOST):
            self._table.insert(tf.constant(name, tf.int64), tf.constant(epoch, tf.int64))
