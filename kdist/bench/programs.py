"""The work of every contestant, by name; libraries are imported when it is theirs."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Work that is timed.

    Args:
        work: Does one turn and returns the seconds that count.
        facts: `images` or `operations` of a turn, and what else is worth telling.
    """

    work: Callable[[], float]
    facts: dict[str, Any]


class Unavailable(Exception):  # noqa: N818 - no error: the contestant is skipped
    """This contestant cannot take part on this machine, and why."""


@contextlib.contextmanager
def peer(name: str) -> Iterator[None]:
    """Import a library inside that need not be there."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(f"{name} is not installed: pip install 'kdist[peers]'") from error


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """The whole of a call counts."""

    def turn() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return turn


def random_images(count: int) -> tuple[Any, Any]:
    """Images of the shape of Fashion-MNIST, float32, and labels: the same for everybody."""
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, *IMAGE_SHAPE)).astype("float32")
    return images, rng.integers(0, CLASSES, count)


def keras(**settings: Any) -> Program:
    """Stock Keras, under `tf.distribute.MirroredStrategy` where there are several replicas."""
    from .keras_training import stock

    return stock(**settings)


def keras_on_jax(**settings: Any) -> Program:
    """Stock Keras on its JAX backend, on one replica."""
    with peer("JAX"):
        import jax  # noqa: F401
    return keras(**settings)


def kdist(**settings: Any) -> Program:
    """kdist, on one replica or several."""
    from .keras_training import distributed

    return distributed(**settings)


def tiny(**settings: Any) -> Program:
    """Two dense layers."""
    from .keras_training import dense

    return dense(**settings)


def torch(**settings: Any) -> Program:
    """PyTorch, channels last."""
    with peer("PyTorch"):
        from .torch_training import training
    return training(**settings)


def matmul() -> Program:
    """Float32 matrix products: what the machine can do at most."""
    import tensorflow as tf
    from kdist.flops import matrix_products

    side, products = (8192, 8) if tf.config.list_physical_devices("GPU") else (2048, 4)
    return Program(
        work=timed(matrix_products(side, products)),
        facts={"operations": products * 2.0 * side**3},
    )


def pipeline(**settings: Any) -> Program:
    """`kdist.data.training_batches` with its augmentation."""
    from .input_pipelines import kdist_data

    return kdist_data(**settings)


def image_data_generator(**settings: Any) -> Program:
    """Keras 2's `ImageDataGenerator`, which the course's lab uses."""
    from .input_pipelines import image_data_generator as generator

    return generator(**settings)


def py_dataset(**settings: Any) -> Program:
    """A `PyDataset` that augments with Keras's layers."""
    from .input_pipelines import py_dataset as dataset

    return dataset(**settings)


PROGRAMS: dict[str, Callable[..., Program]] = {
    function.__name__: function
    for function in (
        keras,
        keras_on_jax,
        kdist,
        tiny,
        torch,
        matmul,
        pipeline,
        image_data_generator,
        py_dataset,
    )
}
