"""Free finished iterators in background threads."""

import _thread
import atexit
import os
import time
import weakref
from typing import Any

import tensorflow as tf

# By then whoever releases an iterator has released all its parts.
_SECONDS = 0.25

_known: "weakref.WeakSet[Any]" = weakref.WeakSet()
_busy: set[_thread.LockType] = set()  # one for each thread, which holds it until it is done


def release_in_background(iterator: Any) -> None:
    """Free what belongs to an iterator in background threads, once nobody holds it.

    The thread that frees an iterator waits for the threads of its dataset. The one that tunes
    parallelism and buffers often sleeps through its cancellation: TensorFlow's
    `CancellationManager` calls back before `IsCancelled` is true, and `Model::OptimizeLoop` (in
    model.cc) then waits on, for up to as long as the iterator has lived, at most a minute.
    Meanwhile Keras neither trains nor validates. A generator that is slow to give the batch after
    the last has the same effect.

    Args:
        iterator: Of a dataset or of a distributed one; a second call does nothing.
    """
    if iterator in _known:
        return
    _known.add(iterator)
    resources = tf.nest.flatten(iterator, expand_composites=True)
    # Not at exit, when no thread may be started.
    weakref.finalize(iterator, _free_in_threads, resources).atexit = False


def _free_in_threads(resources: list[Any]) -> None:
    # Each in a thread of its own: one that waits in line lives on, and is waited for the longer.
    # `threading.Thread` takes a lock, which whoever is interrupted by this, as garbage is
    # collected, may hold.
    while resources:
        busy = _thread.allocate_lock()
        busy.acquire()
        _busy.add(busy)
        try:
            _thread.start_new_thread(_free, ([resources.pop()], busy))
        except RuntimeError:  # no more threads, or Python is ending: freed here, as stock does
            _busy.discard(busy)


def _free(last: list[Any], busy: _thread.LockType) -> None:
    try:
        time.sleep(_SECONDS)
        last.clear()
    finally:
        busy.release()
        _busy.discard(busy)


@atexit.register
def join_releases() -> None:
    """Wait for all that is being freed: a thread must not outlive Python, which ends it midway."""
    while _busy:
        for busy in list(_busy):
            busy.acquire()
            _busy.discard(busy)


os.register_at_fork(after_in_child=_busy.clear)  # a child has none of these threads
