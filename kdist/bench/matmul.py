"""Matrix products, as an upper bound of the machine's speed."""

import tensorflow as tf

from ..performance.flops import matrix_products
from .workload import Workload, timed


def matmul() -> Workload:
    """Float32 products of square matrices."""
    side, products = (8192, 8) if tf.config.list_physical_devices("GPU") else (2048, 4)
    return Workload(
        work=timed(matrix_products(side, products)),
        facts={"operations": products * 2.0 * side**3},
    )
