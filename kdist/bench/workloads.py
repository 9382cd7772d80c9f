"""The workloads of the candidates by name; libraries are imported when they are needed."""

from collections.abc import Callable
from typing import Any

from .workload import Workload, optional_library, timed


def keras(**settings: Any) -> Workload:
    """Stock Keras; with several replicas, under `tf.distribute.MirroredStrategy`."""
    from .keras_training import stock

    return stock(**settings)


def keras_on_jax(**settings: Any) -> Workload:
    """Stock Keras on its JAX backend, on one replica."""
    with optional_library("JAX"):
        import jax  # noqa: F401
    return keras(**settings)


def kdist(**settings: Any) -> Workload:
    """kdist, on one or several replicas."""
    from .keras_training import distributed

    return distributed(**settings)


def stock_network(**settings: Any) -> Workload:
    """A network of `networks.py` in stock Keras."""
    from .network_runs import stock_network as run

    return run(**settings)


def kdist_network(**settings: Any) -> Workload:
    """A network of `networks.py` in kdist."""
    from .network_runs import kdist_network as run

    return run(**settings)


def stock_model(**settings: Any) -> Workload:
    """A user's model in stock Keras."""
    from .own_model_runs import stock_model as run

    return run(**settings)


def kdist_model(**settings: Any) -> Workload:
    """A user's model in kdist."""
    from .own_model_runs import kdist_model as run

    return run(**settings)


def tiny(**settings: Any) -> Workload:
    """Two dense layers."""
    from .keras_training import dense

    return dense(**settings)


def torch(**settings: Any) -> Workload:
    """PyTorch, with channels last."""
    with optional_library("PyTorch"):
        from .torch_training import training
    return training(**settings)


def matmul() -> Workload:
    """Float32 matrix products, as an upper bound of the machine's speed."""
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
    """Keras 2's `ImageDataGenerator`, as in the course's lab."""
    from .input_pipelines import image_data_generator as generator

    return generator(**settings)


def py_dataset(**settings: Any) -> Workload:
    """A `PyDataset` with augmentation by Keras's layers."""
    from .input_pipelines import py_dataset as dataset

    return dataset(**settings)


WORKLOADS: dict[str, Callable[..., Workload]] = {
    function.__name__: function
    for function in (
        keras,
        keras_on_jax,
        kdist,
        stock_network,
        kdist_network,
        stock_model,
        kdist_model,
        tiny,
        torch,
        matmul,
        pipeline,
        image_data_generator,
        py_dataset,
    )
}
