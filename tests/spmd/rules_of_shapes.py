"""Operations that change shapes, slices and splits."""

import tensorflow as tf
from rule_harness import NONE, SOME, B, Table, ints, twin


def count(x):
    """Return the number of rows."""
    return tf.shape(x)[0]


def shapes():
    """Return rows of operations that change shapes, or make tensors of a shape."""
    rows = Table(static=False, batches=False, gradients=True)

    rows.add(
        "Shape ShapeN Size Rank",
        lambda x: [
            tf.shape(x),
            tf.shape(x, "int64"),
            tf.size(x),
            tf.raw_ops.Rank(input=x),
            *tf.shape_n([x, x + 1]),
            tf.cast(tf.shape(x)[0], x.dtype) * 2,
        ],
        [(B, 3)],
        [(2, B, 3)],
        batches=True,
        gradients=False,
    )
    rows.add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [-1, 12]),
            tf.reshape(x, [-1, 3]),
            tf.reshape(x, [-1]),
            tf.reshape(x, [-1, 2, 3, 2]),
            tf.reshape(x, [count(x), -1]),
            tf.reshape(x, [count(x) * 3, 4]),
            tf.reshape(x, [count(x), 2, 6]),
            tf.reshape(x, [1, -1, 3, 4]),
            tf.reshape(x, [1, count(x), 1, 12]),
            tf.reshape(x, [-1, 4, 1]),
            tf.reshape(tf.reshape(x, [-1, 2]), [-1, 3, 4]),
        ],
        [(B, 3, 4)],
        static=True,
        batches=True,
    )
    rows.add(
        "Reshape",  # to more axes than a slice has
        lambda x, y: [tf.reshape(x, [-1, *[1] * 8, 3]) * tf.reshape(y, [-1, *[1] * 8, 3])],
        [(B, 3), (B, 3)],
        gradients=False,
    )
    rows.add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [2, -1, 12]),
            tf.reshape(x, [2, tf.shape(x)[1], 12]),
            tf.reshape(x, [1, 2, -1, 3, 4]),
        ],
        [(2, B, 3, 4)],
        static=True,
    )
    rows.add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [-1, 3]),
            tf.reshape(x, [-1]),
            tf.reshape(tf.reshape(x, [-1, 3]), [2, -1, 3]),
        ],
        [(2, B, 3)],
    )
    rows.add(  # rows that are equal, merged with other axes, are not: they fit no other division
        "Reshape",
        lambda x, w: [
            tf.reshape(tf.broadcast_to(w, [count(x), 3]), [-1]) - tf.reshape(tf.transpose(x), [-1]),
            tf.reshape(tf.tile(w[None], [count(x), 1]), [-1, 1]) * tf.concat([x, x, x], 0),
            tf.reshape(tf.broadcast_to(w[:, None], [3, count(x)]), [-1]) + tf.reshape(x, [-1]),
            tf.reshape(tf.fill([count(x), 3], w[0]), [-1]) + tf.reshape(tf.transpose(x), [-1]),
        ],
        [(B, 3), (3,)],
        divided=SOME,
    )
    rows.add("Reshape", lambda x: tf.reshape(x, [4, -1]), [(B, 4)], divided=NONE, empty=False)
    rows.add(
        "ExpandDims",
        lambda x: [x[..., None], *(tf.expand_dims(x, a) for a in (0, 1, 2, -1, -2))],
        [(B, 3)],
        [(2, B)],
    )
    rows.add(
        "Squeeze",
        lambda x: [tf.squeeze(x, 1), tf.squeeze(x, [-1]), tf.squeeze(x, [1, 3])],
        [(B, 1, 3, 1)],
    )
    rows.add("Squeeze", lambda x: [tf.squeeze(x, 0), tf.squeeze(x, [0, 2])], [(1, B, 1)])
    rows.add(
        "Transpose",
        lambda x: [
            tf.transpose(x),
            tf.transpose(x, [0, 2, 1]),
            tf.transpose(x, [1, 0, 2]),
            tf.transpose(x, [2, 0, 1]),
        ],
        [(B, 2, 3)],
        [(2, B, 3)],
        [(2, 3, B)],
    )
    rows.add(
        "Fill",
        lambda x: [
            tf.fill([count(x)], 2.0),
            tf.fill([3, count(x)], 2),
            tf.fill([count(x) * 2, 3], 1.5),
            tf.fill([count(x), count(x)], 1.5),
        ],
        [(B, 3)],
        static=True,
    )
    rows.add(
        "Fill AddV2",
        lambda x: [
            x + tf.fill(tf.shape(x), tf.constant(2.0, x.dtype)),
            tf.zeros(tf.shape(x)),
            tf.ones_like(x) * x,
            tf.zeros([count(x), 2]),
        ],
        [(B, 3)],
        batches=True,
        gradients=False,
    )
    rows.add(
        "BroadcastTo",
        lambda x: [
            tf.broadcast_to(x[:, None], [count(x), 4, 3]),
            tf.broadcast_to(x, [2, count(x), 3]),
            tf.broadcast_to(x, tf.shape(x)),
        ],
        [(B, 3)],
        static=True,
        batches=True,
    )
    rows.add(
        "BroadcastTo",
        lambda x, w: [
            tf.broadcast_to(w, [count(x), 4, 3]),
            tf.broadcast_to(w[0], [count(x), 3]) + x,
            tf.broadcast_to(w[:, :1], [2, 4, count(x)]),
        ],
        [(B, 3), (4, 3)],
        static=True,
    )
    rows.add(
        "BroadcastTo",
        lambda x, y: [
            tf.broadcast_to(x[:, None], tf.shape(y)),
            tf.broadcast_to(
                x[:, None], tf.broadcast_dynamic_shape(tf.shape(x[:, None]), [3, 1, 4])
            ),
        ],
        [(B,), twin(B, 4)],
        replicated=False,
    )
    rows.add(
        "Reshape",
        lambda x: [
            tf.reshape(x, tf.concat([tf.split(tf.shape(x), [1, -1])[0], [3, 4]], 0)),
            tf.reshape(x, tf.concat([tf.split(tf.shape(x), [1, 2], num=2)[0], [-1]], 0)),
        ],
        [(B, 4, 3)],
        batches=True,
    )
    rows.add(
        "Tile",
        lambda x: [
            tf.tile(x, [1, 2]),
            tf.tile(x, [3, 1]),
            tf.tile(x, [2, 2]),
            tf.tile(x[None], [4, 1, 1]),
        ],
        [(B, 3)],
        batches=True,
    )
    rows.add(
        "Tile",
        lambda x, w: [
            tf.tile(w[None], [count(x), 1, 1]),
            tf.tile(w[:, None], [1, count(x), 2]),
            tf.tile(w[:1], [count(x), 1])[:, :3] * x,
        ],
        [(B, 3), (4, 3)],
    )
    rows.add(
        "Tile",
        lambda x, w: [tf.tile(w, [count(x), 1]), tf.tile(w[None], [count(x), 1, 2])],
        [(B, 3), (4, 3)],
    )
    rows.add(
        "Pad PadV2 MirrorPad",
        lambda x: [
            tf.pad(x, [[0, 0], [1, 2]]),
            tf.pad(x, [[0, 0], [1, 2]], constant_values=2),
            tf.pad(x, [[0, 0], [1, 2]], "REFLECT"),
            tf.pad(x, [[0, 0], [1, 2]], "SYMMETRIC"),
            tf.pad(x > 0, [[0, 0], [1, 2]], "SYMMETRIC"),
            tf.pad(tf.as_string(x), [[0, 0], [1, 2]], "REFLECT"),
        ],
        [(B, 3)],
        empty=False,
    )
    rows.add(
        "MirrorPad MirrorPadGrad",
        lambda x: [
            tf.pad(x, [[0, 0], [1, 2]], "REFLECT"),
            tf.pad(x, [[0, 0], [2, 1]], "SYMMETRIC"),
        ],
        [(B, 3)],
        empty=False,
    )
    rows.add("Pad", lambda x: tf.pad(x, [[1, 2], [0, 0]]), [(2, B)])
    rows.add("Pad", lambda x: tf.pad(x, [[1, 2], [0, 0]]), [(B, 2)], divided=NONE)
    rows.add(
        "ConcatV2",
        lambda x, y: [tf.concat([x, y], 1), tf.concat([x, y, x], -1)],
        [(B, 3), (B, 2)],
        [(B, 3), twin(B, 2)],
        mixed=False,
        batches=True,
    )
    rows.add("ConcatV2", lambda x, y: tf.concat([x, y], 0), [(3, B), (2, B)], mixed=False)
    rows.add(
        "ConcatV2",
        lambda x, y: [tf.concat([x, y], 0), tf.concat([x, y, x], 0) * 2],
        [(B, 3), (B, 3)],
        mixed=False,
    )
    rows.add("ConcatV2", lambda x, y: tf.concat([x, y], 0), [(B, 3), (2, 3)], divided=NONE)
    rows.add(
        "ConcatV2 Fill",
        lambda x: [
            tf.concat([tf.ones([count(x), 1], x.dtype), x], 1),
            tf.concat([tf.ones([count(x), 1]), tf.zeros([count(x), 1])], 0),
        ],
        [(B, 3)],
        gradients=False,
    )
    rows.add(
        "Pack",
        lambda x, y: [tf.stack([x, y], a) for a in (0, 1, -1)],
        [(B, 3), (B, 3)],
        [(2, B), (2, B)],
        [(B, 3), twin(B, 3)],
    )
    rows.add(
        "OneHot",
        lambda x: [tf.one_hot(x, 3), tf.one_hot(x, 5, 2.0, -1.0, axis=0), tf.one_hot(x, 4, axis=1)],
        [ints(B, 3)],
        [ints(2, B)],
    )
    rows.add("OneHot", lambda x: tf.one_hot(x, 3), [ints(B)], [ints(B, 2, 3)])
    rows.add(
        "Range",
        lambda x: [
            tf.range(count(x)),
            tf.range(tf.shape(x, "int64")[0]) * 2,
            tf.cast(tf.range(count(x)), x.dtype)[:, None] * x,
            tf.range(tf.cast(count(x), "float64")),
        ],
        [(B, 3)],
        static=True,
        batches=True,
    )
    rows.add("Range", lambda x: tf.range(count(x) * 2), [(B, 3)], gradients=False)
    rows.add(
        "SpaceToBatchND BatchToSpaceND",
        lambda x: [
            tf.space_to_batch(x, [2, 2], [[0, 0], [1, 0]]),
            tf.batch_to_space(
                tf.space_to_batch(x, [2, 1], [[0, 0], [0, 0]]) * 2, [2, 1], [[0, 0], [0, 1]]
            ),
        ],
        [(B, 4, 3, 2)],
    )
    return rows


def slices():
    """Return rows of slices and splits."""
    rows = Table(static=False, batches=False, gradients=True)

    rows.add(
        "StridedSlice StridedSliceGrad",
        lambda x: [
            x[:, 1:],
            x[:, ::2],
            x[:, 1],
            x[:, -1],
            x[..., 0],
            x[:, None],
            x[None],
            x[..., None, :],
            x[:, ::-1],
            x[: count(x), :2],
            x[0 : count(x)],
            x[:, tf.newaxis, 1:, ..., 1],
            x[:],
        ],
        [(B, 4, 3)],
        static=True,
        batches=True,
    )
    rows.add(
        "StridedSlice StridedSliceGrad",
        lambda x: [x[1], x[1:], x[..., 1:], x[0, :, 1], x[None, 1], x[:, : tf.shape(x)[1]]],
        [(2, B, 3)],
    )
    rows.add(
        "StridedSlice", lambda x: [x[1:], x[:-1], x[::-1], x[::2], x[:2]], [(B, 3)], divided=NONE
    )
    rows.add("StridedSlice", lambda x: x[-1], [(B, 3)], divided=NONE, empty=False)
    rows.add(
        "ConcatV2 StridedSlice StridedSliceGrad Split Slice SplitV",
        lambda x: [
            tf.concat([x, x * 2], 0)[: count(x)],
            tf.concat([x, x * 3], 0)[count(x) :],
            tf.concat([x, x * 3, -x], 0)[count(x) : 2 * count(x)],
            *tf.split(tf.concat([x, x * 2], 0), 2),
            *tf.split(tf.concat([x, x * 2], 0), [count(x), count(x)]),
            tf.slice(tf.concat([x, x * 2], 0), [count(x), 1], [count(x), 2]),
            tf.slice(tf.concat([x, x * 2], 0), [count(x), 0], [-1, -1]),
        ],
        [(B, 3)],
        static=False,
        divided=NONE,
    )
    rows.add(
        "ConcatV2 StridedSlice",
        lambda x, y: [
            tf.concat([x, y], 0)[: count(x)],
            tf.concat([x, y], 0)[count(x) :],
            *tf.split(tf.concat([x, y], 0), [count(x), count(y)]),
        ],
        [(B, 3), twin(B, 3)],
        divided=NONE,
        replicated=False,
    )
    rows.add(
        "Slice",
        lambda x: [
            tf.slice(x, [0, 1], [-1, 2]),
            tf.slice(x, [0, 0], [count(x), -1]),
            tf.slice(x, [0, 1], [count(x), 1]),
            tf.slice(x, [0, 0], [-1, -1]),
        ],
        [(B, 3)],
        static=True,
        batches=True,
    )
    rows.add(
        "Slice",
        lambda x: [tf.slice(x, [1, 0], [1, -1]), tf.slice(x, [0, 0], [2, tf.shape(x)[1]])],
        [(2, B)],
    )
    rows.add("Slice", lambda x: [tf.slice(x, [0, 1], [0, 2])], [(B, 3)], divided=NONE)
    rows.add(
        "Split SplitV",
        lambda x: [
            *tf.split(x, 2, 1),
            *tf.split(x, 4, -1),
            *tf.split(x, [1, 3], 1),
            *tf.split(x, [-1, 1], 1),
        ],
        [(B, 4)],
    )
    rows.add("Split SplitV", lambda x: [*tf.split(x, 2), *tf.split(x, [1, -1])], [(2, B)])
    rows.add("Unpack", lambda x: [*tf.unstack(x, axis=1), *tf.unstack(x, axis=-1)], [(B, 2, 3)])
    rows.add("Unpack", lambda x: tf.unstack(x), [(2, B)])
    return rows
