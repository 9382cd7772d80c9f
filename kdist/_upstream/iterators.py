"""Iterators over batches: freed in background threads, or with a copy of each batch."""

import _thread
import atexit
import os
import time
import weakref
from typing import Any

import tensorflow as tf

# After this time, the last owner has released all parts of the iterator.
_RELEASE_SECONDS = 0.25

_known: "weakref.WeakSet[Any]" = weakref.WeakSet()
_busy: set[_thread.LockType] = set()  # a lock per thread, held until the thread is done


def release_in_background(iterator: Any) -> None:
    """Free an iterator's resources in background threads, once nothing refers to the iterator.

    The thread that frees an iterator waits for the threads of its dataset. The thread that tunes
    parallelism and buffers often misses its cancellation: TensorFlow's `CancellationManager` calls
    back before `IsCancelled` is true, so `Model::OptimizeLoop` (in model.cc) continues to wait, for
    up to the lifetime of the iterator, at most a minute. In the meantime, Keras neither trains nor
    validates. A generator that takes long to end has the same effect.
    """
    if iterator in _known:
        return
    _known.add(iterator)
    resources = tf.nest.flatten(iterator, expand_composites=True)
    # Not at exit, when no thread can be started.
    weakref.finalize(iterator, _free_in_threads, resources).atexit = False


def _free_in_threads(resources: list[Any]) -> None:
    # A thread for each resource: in a sequence, the times to free the resources would add up.
    # Not a `threading.Thread`, which needs a lock: garbage collection may run this function in a
    # thread that holds the lock.
    while resources:
        busy = _thread.allocate_lock()
        busy.acquire()
        _busy.add(busy)
        try:
            _thread.start_new_thread(_free, ([resources.pop()], busy))
        except RuntimeError:  # no more threads, or Python exits: freed here, as in stock Keras
            _busy.discard(busy)


def _free(last: list[Any], busy: _thread.LockType) -> None:
    try:
        time.sleep(_RELEASE_SECONDS)
        last.clear()
    finally:
        busy.release()
        _busy.discard(busy)


@atexit.register
def join_releases() -> None:
    """Wait for all background threads: Python would end them abruptly when it exits."""
    while _busy:
        for busy in list(_busy):
            busy.acquire()
            _busy.discard(busy)


os.register_at_fork(after_in_child=_busy.clear)  # a child has none of these threads


def copy_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset with a copy of each batch, for the iterators of workers on CPUs.

    The tensors of a dataset from Python (`from_generator`, `numpy_function`, Keras's `PyDataset`)
    may share the memory of a NumPy array. TensorFlow does not compute in place on such a tensor,
    but does compute in place on a slice of the tensor, such as the rows of a replica (`SubBuffer`
    in TensorFlow 2.21's tensor.cc): the step overwrites the array, and the next epoch trains on the
    overwritten data. On GPUs the rows of a replica are copies anyway.
    """
    is_tuple = type(dataset.element_spec) is tuple

    def copy(*batch: Any) -> Any:
        copies = tf.nest.map_structure(_copy, batch, expand_composites=True)
        return copies if is_tuple else copies[0]

    return dataset.map(copy)


def _copy(value: Any) -> Any:
    plain = isinstance(value, tf.Tensor) and value.dtype not in (tf.variant, tf.resource)
    return tf.raw_ops.DeepCopy(x=value) if plain else value
