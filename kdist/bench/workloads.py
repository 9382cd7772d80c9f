"""The workloads of the candidates by name; libraries are imported when they are needed."""

import importlib
from collections.abc import Callable
from typing import Any

from .workload import Workload, optional_library


def _of(
    module: str, function: str, *, library: tuple[str, str] | None = None
) -> Callable[..., Workload]:
    """Return a function that imports one of this folder's when it is called, and calls it.

    Args:
        module: The file's name.
        function: The function's.
        library: What may be missing, by the name of its module and its own.
    """

    def make(**settings: Any) -> Workload:
        if library is not None:
            with optional_library(library[1]):
                importlib.import_module(library[0])
        found = importlib.import_module(f".{module}", __package__)
        workload: Workload = getattr(found, function)(**settings)
        return workload

    return make


WORKLOADS: dict[str, Callable[..., Workload]] = {
    "keras": _of("keras_training", "stock"),
    "keras_on_jax": _of("keras_training", "stock", library=("jax", "JAX")),
    "kdist": _of("keras_training", "distributed"),
    "stock_network": _of("network_runs", "stock_network"),
    "kdist_network": _of("network_runs", "kdist_network"),
    "stock_model": _of("own_model_runs", "stock_model"),
    "kdist_model": _of("own_model_runs", "kdist_model"),
    "tiny": _of("keras_training", "dense"),
    "torch": _of("torch_training", "training", library=("torch", "PyTorch")),
    "matmul": _of("matmul", "matmul"),
    "pipeline": _of("input_pipelines", "kdist_data"),
    "image_data_generator": _of("input_pipelines", "image_data_generator"),
    "py_dataset": _of("input_pipelines", "py_dataset"),
}
"""What makes each workload, called with the settings of its candidate."""
