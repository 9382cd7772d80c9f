"""The workloads of the candidates, by name; libraries are imported when it is theirs."""

from collections.abc import Callable
from typing import Any

from .workload import Workload, peer, timed


def keras(**settings: Any) -> Workload:
    """Stock Keras, under `tf.distribute.MirroredStrategy` where there are several replicas."""
    from .keras_training import stock

    return stock(**settings)


def keras_on_jax(**settings: Any) -> Workload:
    """Stock Keras on its JAX backend, on one replica."""
    with peer("JAX"):
        import jax  # noqa: F401
    return keras(**settings)


def kdist(**settings: Any) -> Workload:
    """kdist, on one replica or several."""
    from .keras_training import distributed

    return distributed(**settings)


def tiny(**settings: Any) -> Workload:
    """Two dense layers."""
    from .keras_training import dense

    return dense(**settings)


def torch(**settings: Any) -> Workload:
    """PyTorch, channels last."""
    with peer("PyTorch"):
        from .torch_training import training
    return training(**settings)


def matmul() -> Workload:
    """Float32 matrix products: what the machine can do at most."""
    import tensorflow as tf

    from ..performance.flops import matrix_products

    side, products = (8192, 8) if tf.config.list_physical_devices("GPU") else (2048, 4)
    return Workload(
        work=timed(matrix_products(side, products)),
        facts={"operations": products * 2.0 * side**3},
    )


def pipeline(**settings: Any) -> Workload:
    """`kdist.data.training_batches` with its augmentation."""
    from .input_pipelines import kdist_data

    return kdist_data(**settings)


def image_data_generator(**settings: Any) -> Workload:
    """Keras 2's `ImageDataGenerator`, which the course's lab uses."""
    from .input_pipelines import image_data_generator as generator

    return generator(**settings)


def py_dataset(**settings: Any) -> Workload:
    """A `PyDataset` that augments with Keras's layers."""
    from .input_pipelines import py_dataset as dataset

    return dataset(**settings)


WORKLOADS: dict[str, Callable[..., Workload]] = {
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
