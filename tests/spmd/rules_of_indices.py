"""Look-ups, scatters and segments."""

import functools

import keras
import numpy as np
import tensorflow as tf
from rule_harness import NONE, B, Table, bools, ints, raw


def indexing():
    """Return rows of look-ups, scatters and segments."""
    rows = Table(static=False)

    rows.add(
        "GatherV2",
        lambda w, i: tf.gather(w, i),
        [(4, 2), ints(B)],
        [(4, 2), ints(B, 3)],
        [(4, 2), ints(3, B)],
        gradients=True,
    )
    rows.add(
        "GatherV2",
        lambda w, i: tf.gather(w, i, axis=1),
        [(3, 4, 2), ints(B)],
        [(3, 4), ints(2, B)],
        [(B, 4), ints(3)],
        [(3, 4, B), ints(2, 3)],
        [(B, 4, 2), ints()],
    )
    rows.add(
        "GatherV2",
        lambda x: [
            tf.gather(x, [2, 0], axis=1),
            tf.gather(x, 1, axis=-1),
            tf.gather(x, [[0, 1]], axis=1),
        ],
        [(B, 3)],
    )
    rows.add(
        "SelectV2 GatherV2",
        lambda x: tf.vectorized_map(lambda row: tf.sin(row) * tf.cumsum(row), x),
        [(B, 3)],
        gradients=True,
        batches=False,
    )
    rows.add(
        "GatherV2 UnsortedSegmentSum",
        lambda x: [tf.gather(x, [2, 0], axis=1), tf.gather(x, [[0, 1]], axis=1)],
        [(B, 3)],
        gradients=True,
        divided=NONE,
    )
    rows.add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, batch_dims=1),
        [(B, 4), ints(B)],
        [(B, 4, 2), ints(B, 3)],
    )
    rows.add(
        "GatherV2", lambda x, i: tf.gather(x, i, axis=2, batch_dims=1), [(B, 2, 4), ints(B, 3)]
    )
    for axis in (1, -1):
        rows.add(
            "BroadcastTo GatherV2",
            functools.partial(keras.ops.take_along_axis, axis=axis),
            [(B, 4), ints(B, 2, twin=True)],
            [(B, 4, 4), ints(B, 4, 1, twin=True)],
            gradients=True,
            batches=False,
            replicated=False,
        )
    rows.add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, axis=2, batch_dims=2),
        [(B, 2, 4), ints(B, 2, 3)],
        [(2, B, 4), ints(2, B)],
    )
    rows.add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, batch_dims=1) * 2,
        [(B, 4), ints(B)],
        gradients=True,
        divided=NONE,
    )
    rows.add(
        "GatherV2",
        lambda x, i: [tf.gather(x, tf.argsort(x[:, 0])), tf.gather(x, [0])],
        [(B, 3), ints(B)],
        divided=NONE,
        empty=False,
    )
    rows.add(
        "Where GatherV2",
        lambda x: [
            tf.boolean_mask(x, x[:, 0] > 0),
            tf.gather(x, tf.where(x[:, 0] > 0)[:, 0]),
            tf.where(x > 0),
            tf.where(x[:, 0] > 0),
        ],
        [(B, 3)],
        batches=False,
    )
    rows.add(
        "Where GatherV2",
        lambda x: [tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0) ** 2, 0)],
        [(B, 3)],
        batches=False,
        gradients=True,
        divided=NONE,
    )
    rows.add("Where", lambda x: [tf.where(x > 0), tf.where(x)], [(2, B)], divided=NONE)
    rows.add(
        "GatherNd",
        lambda w, i: tf.gather_nd(w, i),
        [(4, 4, 2), ints(B, 2)],
        [(4, 4), ints(3, B, 2)],
        [(4, 2), ints(B, 1)],
        gradients=True,
    )
    for kind in ("Sum", "Max", "Min", "Prod"):
        rows.add(
            f"UnsortedSegment{kind}",
            lambda x, i, kind=kind: raw(f"UnsortedSegment{kind}")(x, i - 1, 4),
            [(B, 3), ints(B)],
            [(B, 3), ints(B, 3)],
            [(2, B, 3), ints(2, B)],
            [(2, B), ints(2, B)],
        )
    rows.add(
        "UnsortedSegmentSum",
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 4),
        [(B, 3), ints(B)],
        gradients=True,
        divided=NONE,
    )
    rows.add(
        "UnsortedSegmentSum", lambda x, i: tf.math.unsorted_segment_mean(x, i, 4), [(B, 3), ints(B)]
    )
    rows.add(
        "UnsortedSegmentSum",
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 4),
        [(2, B), ints(2)],
        [(2, 3, B), ints(2, 3)],
    )
    rows.add(
        "ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4, 3]), [ints(B, 1), (B, 3)], gradients=True
    )
    rows.add(
        "ScatterNd",
        lambda i, x: tf.scatter_nd(i, x, [4, 4]),
        [ints(B, 2), (B,)],
        [ints(B, 2, 2), (B, 2)],
    )
    rows.add("ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4, 3]), [ints(B, 1), ints(B, 3)])
    rows.add(
        "ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4]), [ints(B, 1), bools(B)], divided=NONE
    )
    rows.add(
        "DenseBincount",
        lambda x: [
            tf.math.bincount(x, minlength=4, maxlength=4),
            tf.raw_ops.DenseBincount(input=x, size=5, weights=tf.zeros([0])),
        ],
        [ints(B)],
        divided=NONE,
    )

    def bins(binary):
        return lambda x, *w: tf.raw_ops.DenseBincount(
            input=x, size=5, weights=w[0] if w else tf.zeros([0]), binary_output=binary
        )

    rows.add(
        "DenseBincount", bins(False), [ints(B)], [ints(B, 3)], [ints(B, 3), (B, 3)], [ints(B), (B,)]
    )
    rows.add("DenseBincount", bins(True), [ints(B, 3)])
    rows.add("DenseBincount", bins(True), [ints(B)], divided=NONE)
    rows.add("LookupTableFindV2", lambda x: table_of_numbers().lookup(x), [ints(B)], [ints(B, 2)])
    rows.add("LookupTableSizeV2", lambda x: table_of_numbers().size(), [ints(B)], divided=NONE)
    table = np.arange(12.0).reshape(4, 3)
    rows.add(
        "ResourceGather",
        lambda i, v: tf.raw_ops.ResourceGather(resource=v.handle, indices=i, dtype="float64"),
        [ints(B)],
        [ints(2, B)],
        variable=table,
    )
    rows.add(
        "ResourceGatherNd",
        lambda i, v: tf.raw_ops.ResourceGatherNd(resource=v.handle, indices=i % 3, dtype="float64"),
        [ints(B, 2)],
        [ints(2, B, 1)],
        variable=table,
    )
    kinds = ["Add", "Sub", "Update", "Mul", "Div", "Min", "Max"]

    def scattered(i, x, v, kind):
        v.assign(table)
        with tf.control_dependencies(
            [getattr(tf.raw_ops, kind)(resource=v.handle, indices=i, updates=x)]
        ):
            return v.read_value()

    for kind in kinds:
        inputs = [ints(B), (B, 3)]
        fn = functools.partial(scattered, kind=f"ResourceScatter{kind}")
        if kind == "Update":  # of the same values where an index is twice
            fn = lambda i, x, v, fn=fn: fn(i, tf.cast(i, x.dtype)[:, None] + [[1.0, 2, 3]], v=v)  # noqa: E731
        rows.add(f"ResourceScatter{kind}", fn, inputs, variable=table, batches=False)
    for kind in ("Add", "Sub", "Update"):

        def fn(i, x, v, kind=kind):
            x = tf.cast(i, x.dtype) + tf.constant([[1.0, 2, 3]], x.dtype) if kind == "Update" else x
            v.assign(table)
            with tf.control_dependencies(
                [
                    getattr(tf.raw_ops, f"ResourceScatterNd{kind}")(
                        ref=v.handle, indices=i, updates=x
                    )
                ]
            ):
                return v.read_value()

        rows.add(
            f"ResourceScatterNd{kind}", fn, [ints(B, 1), (B, 3)], variable=table, batches=False
        )
    rows.add(
        "GatherV2",
        lambda i, v: tf.nn.embedding_lookup(v, i) ** 2,
        [ints(B, 3)],
        variable=table,
        divided=NONE,
    )
    return rows


def table_of_numbers():
    """Return a table."""
    with tf.init_scope():
        keys, found = tf.constant([0, 1, 2]), tf.constant([5.0, 6.0, 7.0])
        initializer = tf.lookup.KeyValueTensorInitializer(keys, found)
        TABLES.append(tf.lookup.StaticHashTable(initializer, -1.0))
    return TABLES[-1]


TABLES = []  # which have to outlive the steps
