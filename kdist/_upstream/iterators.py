"""Iterators that nobody waits for when they are done."""

import gc
import queue
import threading
import time
import weakref
from typing import Any

import tensorflow as tf

# Between two collections of garbage, each of which stops Python for a third of a second.
COLLECTION_SECONDS = 30.0

_done: "queue.SimpleQueue[list[Any]]" = queue.SimpleQueue()
_started = threading.Lock()  # taken once, by the first iterator


def let_go_aside(iterator: Any) -> None:
    """Have what belongs to an iterator freed in a thread of its own, once nobody holds it.

    The thread that frees an iterator waits for the threads of its dataset. The one that tunes
    parallelism and buffers often sleeps through its cancellation: TensorFlow's
    `CancellationManager` calls back before `IsCancelled` is true, and `Model::OptimizeLoop` (in
    model.cc) then goes on to wait, for up to as long as the iterator has lived, at most a minute.
    Meanwhile Keras neither trains nor validates. A generator that is slow to give the batch after
    the last has the same effect.

    Args:
        iterator: Of a dataset or of a distributed one.
    """
    if _started.acquire(blocking=False):
        threading.Thread(target=_free, name="kdist-iterators", daemon=True).start()
    resources = tf.nest.flatten(iterator, expand_composites=True)
    # Not at exit, when nobody waits.
    weakref.finalize(iterator, _done.put, resources).atexit = False


def _free() -> None:
    while True:
        resources = _done.get()
        if len(resources) > 1:  # of several devices
            # What reads them on a device is in cycles of references: whichever thread happens to
            # collect those would free the iterator, if this one did not hold it until then.
            time.sleep(COLLECTION_SECONDS)
            while not _done.empty():
                resources += _done.get()
            gc.collect()
        resources.clear()
