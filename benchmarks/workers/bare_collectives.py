"""The collectives of a step: recorded, removed, and run alone."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from kdist._upstream.collective_launchers import Launcher
from tensorflow.python.ops import collective_ops

Shape = tuple[int, tf.DType]
"""Numbers and dtype of a sum."""


@contextlib.contextmanager
def _replaced(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    original = Launcher.all_reduce
    Launcher.all_reduce = make(original)
    try:
        yield
    finally:
        Launcher.all_reduce = original


@contextlib.contextmanager
def recording() -> Iterator[list[Shape]]:
    """Collect the sums that are traced in the `with` block."""
    shapes: list[Shape] = []

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def all_reduce(launcher: Any, value: Any, *args: Any) -> Any:
            if not tf.executing_eagerly():
                shapes.append((value.shape.num_elements(), value.dtype))
            return original(launcher, value, *args)

        return all_reduce

    with _replaced(make):
        yield shapes


@contextlib.contextmanager
def without_collectives() -> Iterator[None]:
    """Inside the `with` block, steps are traced that add a worker's own value to itself.

    TensorFlow has no function for it: these workers train apart, but no longer or shorter.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def all_reduce(launcher: Any, value: Any, *args: Any) -> Any:
            if tf.executing_eagerly():
                return original(launcher, value, *args)
            return tf.add_n([value] * launcher._group_size)

        return all_reduce

    with _replaced(make):
        yield


def bare(strategy: Any, shapes: Sequence[Shape], repeats: int) -> Callable[[], dict[str, float]]:
    """Return a function that times TensorFlow's all-reduces of these sums, one after another."""
    launcher = strategy.extended._cross_device_ops._launchers[0]
    keys = launcher._collective_keys
    values = [tf.zeros([count], dtype) for count, dtype in shapes]

    @tf.function(autograph=False)
    def run(values: list[Any]) -> Any:
        previous: list[Any] = []
        for value in values:
            key = keys.get_instance_key(launcher._group_key, launcher._device)
            with tf.control_dependencies(previous):
                total = collective_ops.all_reduce_v2(
                    value, launcher._group_size, launcher._group_key, key
                )
            previous = [total]
        return previous

    def turn() -> dict[str, float]:
        began = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            run(values)[0].numpy()
        wall, own = time.perf_counter() - began[0], time.process_time() - began[1]
        return {"seconds": wall / repeats, "processor_seconds": own / repeats}

    return turn
