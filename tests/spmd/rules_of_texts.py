"""Texts, and rows of different lengths."""

import functools

import keras
import tensorflow as tf
from rule_harness import NONE, B, Table, bools, ints, raw


def ragged():
    """Return rows of operations on texts."""
    rows = Table(batches=False, static=False, whole_in_graph=True)

    def texts(x):
        """Return texts of no to three words."""
        return tf.strings.reduce_join(tf.gather(["", "A ", "Bb, ", "c-d "], x), -1)

    rows.add(
        "ReduceJoin",
        lambda x: [
            tf.strings.reduce_join(tf.as_string(x), 1, separator="-"),
            tf.strings.reduce_join(tf.as_string(x), -1, keepdims=True),
            tf.strings.reduce_join(tf.as_string(tf.transpose(x)), 0),
        ],
        [ints(B, 3)],
        batches=True,
    )
    rows.add(
        "ReduceJoin",
        lambda x: [tf.strings.reduce_join(tf.as_string(x), axis) for axis in (None, [], 0)],
        [ints(B, 3)],
        divided=NONE,
    )
    rows.add(
        "Substr StringJoin EncodeBase64 DecodeBase64 UnicodeScript UnicodeTranscode",
        lambda x: [
            tf.strings.substr(texts(x), tf.zeros_like(x[:, 0]), x[:, 1] % 2),
            tf.strings.substr(tf.strings.join([texts(x), "....."]), 1, 2),
            tf.strings.join([texts(x), texts(3 - x), "!"], "-"),
            tf.io.decode_base64(tf.io.encode_base64(texts(x))),
            tf.strings.unicode_script(x + 64),
            tf.strings.unicode_transcode(texts(x), "UTF-8", "UTF-16-BE"),
        ],
        [ints(B, 3)],
        batches=True,
    )
    rows.add(
        "StringSplitV2 RaggedTensorToTensor StridedSlice",
        lambda x: [
            tf.strings.split(texts(x)).to_tensor("none", shape=[None, 2]),
            tf.strings.split(texts(x)).to_tensor("none", shape=tf.stack([tf.shape(x)[0], 4])),
            tf.strings.split(texts(x), "b").to_tensor(),
            raw("StringSplitV2")(texts(x), ""),
        ],
        [ints(B, 3)],
    )
    rows.add(
        "RaggedTensorToTensor kernel:longest_row",
        lambda x: tf.strings.split(texts(x)).to_tensor(),
        [ints(B, 3)],
    )
    rows.add(
        "StringSplit SparseToDense",
        lambda x: [
            raw("StringSplit", skip_empty=False)(texts(x), " "),
            tf.sparse.to_dense(tf.compat.v1.string_split(texts(x), " "), "-")[:, :1],
        ],
        [ints(B, 3)],
    )
    rows.add(
        "StringSplitV2",
        lambda x: tf.strings.split(tf.concat([texts(x), texts(3 - x)], 0)).values,
        [ints(B, 3)],
        divided=NONE,
    )
    rows.add(
        "RaggedTensorToTensor",
        lambda x, y: tf.RaggedTensor.from_row_splits(x, [0, 1, tf.shape(x)[0]]).to_tensor(),
        [ints(B, 3), ints(B)],
        divided=NONE,
        empty=False,
    )
    rows.add(
        "Where GatherNd SparseToDense",
        lambda x: tf.sparse.to_dense(tf.sparse.from_dense(x)),
        [ints(B)],
        [ints(B, 3)],
    )
    rows.add(
        "SparseToDense",
        lambda x: tf.raw_ops.SparseToDense(
            sparse_indices=tf.range(tf.shape(x)[0]),
            output_shape=tf.shape(x),
            sparse_values=x,
            default_value=0,
        ),
        [ints(B)],
        divided=NONE,
    )

    def of_kept_steps(x, mask, kind):
        """Reduce the steps of each sample that a mask keeps."""
        steps = tf.where(mask)
        reduce = getattr(tf.math, f"unsorted_segment_{kind}")
        return reduce(tf.gather_nd(x, steps), steps[:, 0], tf.shape(x)[0])

    for kind in ("sum", "max", "min", "prod"):
        rows.add(
            f"UnsortedSegment{kind.title()} Where",
            functools.partial(of_kept_steps, kind=kind),
            [(B, 4, 3), bools(B, 4)],
            [(B, 4), bools(B, 4)],
            mixed=False,
        )
    rows.add(
        "UnsortedSegmentSum Where Maximum GatherV2 ScatterNd",
        functools.partial(of_kept_steps, kind="mean"),
        [(B, 4, 3), bools(B, 4)],
        gradients=True,
        mixed=False,
    )
    vectorize = keras.layers.TextVectorization(vocabulary=["a", "bb", "d"])
    narrow = keras.layers.TextVectorization(vocabulary=["a", "bb"], output_sequence_length=2)
    rows.add(
        "StringSplitV2 RaggedTensorToTensor kernel:longest_row",
        lambda x: [vectorize(texts(x)[:, None]), narrow(texts(x)[:, None])],
        [ints(B, 3)],
    )
    crossing = keras.layers.HashedCrossing(7)
    one_hot = keras.layers.HashedCrossing(5, output_mode="one_hot")
    rows.add(
        "SparseCross SparseToDense",
        lambda x, y: [crossing((tf.as_string(x[:, :1]), y)), one_hot((x[:, :1], y))],
        [ints(B, 3), ints(B, 1)],
    )
    rows.add(
        "SparseCross SparseToDense",
        lambda x, y: tf.sparse.to_dense(tf.sparse.cross_hashed([x, tf.as_string(y)], 9)),
        [ints(B, 3), ints(B, 2)],
    )
    return rows
