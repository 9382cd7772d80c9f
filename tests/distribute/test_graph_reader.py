"""The kinds of tensors, read from the graph: x has a row per sample, n their number."""

import pytest
import tensorflow as tf
from kdist.distribute.graph_reader import GraphReader
from kdist.distribute.reduction_kinds import Kind

ROWS = 4
CASES = {
    "rows stay rows": (lambda x, n: tf.reshape(tf.cast(x, "float64"), (ROWS, 3, 1)), Kind.ROWS),
    "rows are not the first axis": (lambda x, n: tf.transpose(x[:, None], (1, 0, 2)), Kind.OTHER),
    "rows as columns": (lambda x, n: tf.transpose(x), Kind.COLUMNS),
    "an axis before the rows": (lambda x, n: 2 * x[None] + tf.expand_dims(x, 0), Kind.COLUMNS),
    "rows again": (lambda x, n: tf.transpose(tf.exp(tf.transpose(x))), Kind.ROWS),
    "rows after a broadcast": (lambda x, n: tf.ones((5, 1, 1)) * x, Kind.COLUMNS),
    "a sum over columns": (lambda x, n: tf.reduce_sum(tf.transpose(x)), Kind.SUM),
    "a mean over columns": (lambda x, n: tf.reduce_mean(2 * x[None]), Kind.MEAN),
    "a mean over some columns": (lambda x, n: tf.reduce_mean(x[None], axis=(1, 2)), Kind.OTHER),
    "one part of several": (lambda x, n: tf.identity_n([n, x])[1], Kind.ROWS),
    "a sum over samples": (lambda x, n: tf.reduce_sum(x), Kind.SUM),
    "a mean over samples": (lambda x, n: tf.reduce_mean(x), Kind.MEAN),
    "a largest value": (lambda x, n: tf.reduce_max(x), Kind.OTHER),
    "a sum over another axis": (lambda x, n: tf.reduce_sum(x, axis=1), Kind.ROWS),
    "half the squares": (lambda x, n: tf.nn.l2_loss(x), Kind.SUM),
    "a mean of means": (lambda x, n: tf.reduce_mean(tf.reduce_mean(x, axis=0)), Kind.MEAN),
    "the number of rows": (lambda x, n: tf.shape(x, out_type="int64")[0], Kind.COUNT),
    "the number of columns": (lambda x, n: tf.shape(x, out_type="int64")[1], Kind.SAME),
    "a sum by the number of samples": (lambda x, n: tf.reduce_sum(x) / n, Kind.MEAN),
    "a sum by the known number": (lambda x, n: tf.reduce_sum(x) / float(ROWS), Kind.MEAN),
    "a sum by a constant": (lambda x, n: tf.reduce_sum(x) / 3.0, Kind.SUM),
    "a mean times the number": (lambda x, n: tf.reduce_mean(x) * n, Kind.SUM),
    "a mean and a constant": (lambda x, n: tf.reduce_mean(x) + 1.0, Kind.MEAN),
    "a sum and zero": (lambda x, n: tf.reduce_sum(x) + 0.0, Kind.SUM),
    "a sum and a mean": (lambda x, n: tf.reduce_sum(x) + tf.reduce_mean(x), Kind.OTHER),
    "a square of each": (lambda x, n: tf.square(x), Kind.ROWS),
    "a square of a mean": (lambda x, n: tf.square(tf.reduce_mean(x)), Kind.OTHER),
    "rows along rows": (lambda x, n: x[:, :, None] - tf.reduce_sum(x, axis=1), Kind.OTHER),
    "all differences": (lambda x, n: tf.nn.relu(x[:, None] - x[None]), Kind.PAIRS),
    "equal labels": (lambda x, n: tf.equal(x[:, :1], tf.transpose(x[:, :1])), Kind.PAIRS),
    "rows one below the other": (lambda x, n: tf.stack([x, x]), Kind.COLUMNS),
    "rows side by side": (lambda x, n: tf.concat([x, x], axis=1), Kind.ROWS),
    "a product with weights": (lambda x, n: tf.matmul(x, tf.ones((3, 2))), Kind.ROWS),
    "a product of all rows": (lambda x, n: tf.matmul(x, x, transpose_a=True), Kind.PAIRS),
    "some rows": (lambda x, n: x[1:], Kind.OTHER),
    "some columns": (lambda x, n: x[:, 1:], Kind.ROWS),
    "an inverse of all rows": (lambda x, n: tf.linalg.inv(x[:, :3]), Kind.OTHER),
    "an inverse for each row": (
        lambda x, n: tf.linalg.inv(tf.linalg.diag(x + 1.0)),
        Kind.ROWS,
    ),
    "every other row": (lambda x, n: x[::2], Kind.OTHER),
    "rows from the last to the first": (lambda x, n: x[::-1], Kind.PAIRS),
    "columns from the last to the first": (lambda x, n: x[:, ::-1], Kind.ROWS),
    "a softmax of all pairs": (
        lambda x, n: tf.nn.log_softmax(tf.matmul(x, x, transpose_b=True)),
        Kind.PAIRS,
    ),
    "the number of all pairs": (
        lambda x, n: tf.shape(tf.matmul(x, x, transpose_b=True))[0],
        Kind.COUNT,
    ),
    "pairs of an einsum": (lambda x, n: tf.nn.softmax(tf.einsum("id,jd->ij", x, x)), Kind.PAIRS),
    "an einsum within samples": (
        lambda x, n: tf.nn.softmax(tf.einsum("bi,bj->bij", x, x)),
        Kind.ROWS,
    ),
    "an einsum with rows later": (
        lambda x, n: tf.einsum("tbd,sbd->bts", tf.ones((5, 1, 1)) * x, tf.ones((2, 1, 1)) * x),
        Kind.OTHER,
    ),
    "the largest rows": (lambda x, n: tf.sort(x[:, 0])[-2:], Kind.PAIRS),
    "sums of rows so far": (lambda x, n: tf.nn.relu(tf.cumsum(x)), Kind.PAIRS),
    "rows of an order": (lambda x, n: tf.gather(x, tf.argsort(x[:, 0])), Kind.PAIRS),
    "rows of an own order": (
        lambda x, n: tf.gather(x, (tf.range(tf.shape(x)[0]) + 1) % tf.shape(x)[0]),
        Kind.PAIRS,
    ),
    "a mask of lengths": (
        lambda x, n: tf.exp(tf.cast(tf.sequence_mask(tf.cast(x[:, 0], "int32")), "float32")),
        Kind.OTHER,
    ),
    "rows of a condition": (lambda x, n: tf.boolean_mask(x, x[:, 0] > 0), Kind.OTHER),
    "a row of each sequence": (
        lambda x, n: tf.gather(tf.reshape(x, (-1, 1)), 3 * tf.range(ROWS)),
        Kind.OTHER,
    ),
    "some columns by their numbers": (
        lambda x, n: tf.gather(x, tf.where([True, False], [0, 2], [0, 0]), axis=1),
        Kind.ROWS,
    ),
    "rows of numbers that are drawn": (
        lambda x, n: tf.gather(x, tf.cast(3 * tf.random.uniform((4,)), "int32")),
        Kind.OTHER,
    ),
    "a slice of nothing": (lambda x, n: x[()], Kind.ROWS),
    "the first half of the rows": (
        lambda x, n: x[: tf.cast(0.5 * tf.cast(tf.shape(x)[0], "float32"), "int32")],
        Kind.OTHER,
    ),
    "half of the rows by their numbers": (
        lambda x, n: tf.gather(x, tf.range(tf.shape(x)[0] // 2)),
        Kind.PAIRS,
    ),
    "a mean that is looked up": (lambda x, n: tf.gather(tf.reduce_mean(x, 0), 1), Kind.MEAN),
    "counts of values": (lambda x, n: tf.math.bincount(tf.cast(x[:, 0], "int32")), Kind.OTHER),
    "all rows by their numbers": (lambda x, n: tf.gather(x, tf.range(tf.shape(x)[0])), Kind.ROWS),
    "sample by sample": (lambda x, n: tf.vectorized_map(tf.norm, x), Kind.ROWS),
    "half of the rows": (lambda x, n: tf.nn.softmax(tf.split(x, 2)[0]), Kind.PAIRS),
    "a row of means": (lambda x, n: tf.reduce_mean(x, 0)[1], Kind.MEAN),
    "one of several sums": (lambda x, n: tf.unstack(tf.reduce_sum(x, 0))[1], Kind.SUM),
    "the number of rows, unpacked": (lambda x, n: tf.unstack(tf.shape(x))[0], Kind.COUNT),
    "the number of columns, unpacked": (lambda x, n: tf.unstack(tf.shape(x))[1], Kind.SAME),
    "the number of values": (lambda x, n: tf.shape(x[:, 0])[-1], Kind.COUNT),
    "a sum of fractions": (lambda x, n: tf.reduce_sum(x / n), Kind.MEAN),
    "centered rows": (lambda x, n: tf.nn.softmax(x - tf.reduce_mean(x, 0)), Kind.PAIRS),
    "statistics that are looked up": (
        lambda x, n: tf.gather(tf.reduce_sum(x, 0), tf.cast(x[:, 0], "int32")),
        Kind.PAIRS,
    ),
    "rows and constants": (lambda x, n: tf.concat([x, tf.ones((2, 3))], 0), Kind.PAIRS),
    "one of two batches": (lambda x, n: tf.split(tf.exp(tf.concat([x, x], 0)), 2)[1], Kind.ROWS),
    "the first of two batches": (
        lambda x, n: tf.exp(tf.concat([x, x], 0))[: tf.shape(x)[0]],
        Kind.ROWS,
    ),
    "the second of two batches": (
        lambda x, n: (both := tf.concat([x, x], 0))[tf.shape(both)[0] // 2 :],
        Kind.ROWS,
    ),
    "a third of two batches": (
        lambda x, n: (both := tf.concat([x, x], 0))[: tf.shape(both)[0] // 3],
        Kind.OTHER,
    ),
    "a softmax of each row": (lambda x, n: tf.nn.log_softmax(x), Kind.ROWS),
    "rows in another order": (lambda x, n: tf.reverse(x, [0]), Kind.PAIRS),
    "columns in another order": (lambda x, n: tf.reverse(x, [1]), Kind.ROWS),
    "a constant": (lambda x, n: tf.range(3) * 2, Kind.SAME),
    "in a condition": (
        lambda x, n: tf.cond(tf.constant(True), lambda: x, lambda: 2.0 * x),
        Kind.ROWS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_kind_of_a_tensor(case):
    compute, expected = CASES[case]
    found = []

    @tf.function(input_signature=[tf.TensorSpec((None, 3)), tf.TensorSpec(())], autograph=False)
    def step(x, n):
        reader = GraphReader(ROWS)
        reader.mark(x, Kind.ROWS)
        reader.mark(n, Kind.COUNT)
        result = compute(x, n)
        found.extend(one.kind(result) for one in (reader, reader.strict()))

    step(tf.ones((ROWS, 3)), tf.constant(float(ROWS)))
    assert found == [expected, expected]
