"""The kinds of tensors, read from the graph: x has a row per sample, n their number."""

import pytest
import tensorflow as tf
from kdist.distribute.graph_reader import GraphReader
from kdist.distribute.reduction_kinds import Kind

ROWS = 4
CASES = {
    "rows stay rows": (lambda x, n: tf.reshape(tf.cast(x, "float64"), (ROWS, 3, 1)), Kind.ROWS),
    "rows are not the first axis": (lambda x, n: tf.transpose(x), Kind.OTHER),
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
    "rows one below the other": (lambda x, n: tf.stack([x, x]), Kind.OTHER),
    "rows side by side": (lambda x, n: tf.concat([x, x], axis=1), Kind.ROWS),
    "a product with weights": (lambda x, n: tf.matmul(x, tf.ones((3, 2))), Kind.ROWS),
    "a product of all rows": (lambda x, n: tf.matmul(x, x, transpose_a=True), Kind.OTHER),
    "some rows": (lambda x, n: x[1:], Kind.OTHER),
    "some columns": (lambda x, n: x[:, 1:], Kind.ROWS),
    "an inverse of all rows": (lambda x, n: tf.linalg.inv(x[:, :3]), Kind.OTHER),
    "an inverse for each row": (
        lambda x, n: tf.linalg.inv(tf.linalg.diag(x + 1.0)),
        Kind.ROWS,
    ),
    "every other row": (lambda x, n: x[::2], Kind.OTHER),
    "rows from the last to the first": (lambda x, n: x[::-1], Kind.OTHER),
    "columns from the last to the first": (lambda x, n: x[:, ::-1], Kind.ROWS),
    "a softmax of all pairs": (
        lambda x, n: tf.nn.log_softmax(tf.matmul(x, x, transpose_b=True)),
        Kind.ROWS,
    ),
    "a softmax of each row": (lambda x, n: tf.nn.log_softmax(x), Kind.ROWS),
    "rows in another order": (lambda x, n: tf.reverse(x, [0]), Kind.OTHER),
    "columns in another order": (lambda x, n: tf.reverse(x, [1]), Kind.ROWS),
    "a constant": (lambda x, n: tf.range(3) * 2, Kind.SAME),
    "in a condition": (
        lambda x, n: tf.cond(tf.constant(True), lambda: x, lambda: 2.0 * x),
        Kind.ROWS,
    ),
}


STRICTLY = {"a softmax of all pairs": Kind.OTHER}


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
    assert found == [expected, STRICTLY.get(case, expected)]
