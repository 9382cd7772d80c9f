"""The rows of a scattered sum have the bits of the whole sum, on any number of devices."""

import numpy as np
import tensorflow as tf
from kdist.spmd.collectives import ExchangedRows
from kdist.spmd.fixed_order import FixedOrder


def test_scattered_rows_have_the_bits_of_the_sum():
    shards = 8
    numbers = np.random.default_rng(0).normal(size=[shards, shards, 64]).astype("float32")
    collectives = FixedOrder(["/device:CPU:0"] * shards)
    parts = [tf.constant(part) for part in numbers]
    total = collectives.sum_all([parts])[0][0]
    rows = collectives.scatter_sums([ExchangedRows(parts, [shards, 64], 0, [1] * shards)])[0]
    np.testing.assert_array_equal(tf.concat(rows, 0), total)
