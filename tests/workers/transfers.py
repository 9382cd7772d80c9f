"""What workers send each other in a step: how often, and how gradients are rounded."""

import contextlib

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from worker_trainings import X, Y

NORMALIZATIONS = 2
BFLOAT16 = tf.bfloat16.as_numpy_dtype


@contextlib.contextmanager
def _recorded(strategy):
    """Collect the graphs of the steps that are traced in the `with` block."""
    graphs, run_step = [], strategy.run_step

    def recorded(*args, **options):
        graphs.append(tf.compat.v1.get_default_graph())
        return run_step(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "run_step", recorded)
        yield graphs


def _collectives(graph):
    """The nodes of a step that wait for the other workers, and those of its inner functions."""
    definition = graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
        nodes += function.node_def
    return [node.name for node in nodes if node.op.startswith("Collective")]


@contextlib.contextmanager
def _sent(strategy, **options):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setattr(strategy, name, value)
        yield


def _trained(strategy):
    keras.utils.set_random_seed(0)
    hidden = [layer for _ in range(NORMALIZATIONS) for layer in _block()]
    classes = keras.layers.Dense(3, activation="softmax")
    model = strategy.build(lambda: keras.Sequential([keras.Input((6,)), *hidden, classes]))
    with strategy.scope():
        metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=metrics)
    model.fit(X, Y, batch_size=12, shuffle=False, verbose=0)
    return model


def _block():
    return [keras.layers.Dense(5), kdist.layers.SyncBatchNormalization()]


def counts_the_collectives_of_a_step(strategy, folder):
    """Rows with the question for data; loss, metrics and gradients; two for each batch norm."""
    del folder
    with _recorded(strategy) as graphs:
        model = _trained(strategy)
        training = _collectives(graphs[-1])
        assert len(training) <= 3 + 2 * NORMALIZATIONS, training
        model.evaluate(X, Y, batch_size=12, verbose=0)
        assert len(_collectives(graphs[-1])) == 2
        weights = model.get_weights()
    with _sent(strategy, bucket_bytes=1):
        model = _trained(strategy)
    for one, other in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def rounds_gradients_to_bfloat16(strategy, folder):
    """NumPy's sum of each worker's rounded gradient; the numbers are exact in float32."""
    del folder
    rng = np.random.default_rng(0)
    x, y = rng.integers(-50, 50, (8, 5)).astype("f4"), rng.integers(-50, 50, (8, 1)).astype("f4")
    parts = [2 / len(x) * rows.T @ -labels for rows, labels in zip(*_halves(x, y), strict=True)]
    rounded = np.sum([part.astype(BFLOAT16) for part in parts], axis=0, dtype=BFLOAT16)
    exact = np.sum(parts, axis=0)
    assert not np.array_equal(rounded.astype("f4"), exact)
    for dtype, expected in {None: exact, "bfloat16": rounded.astype("f4")}.items():
        with _sent(strategy, gradient_dtype=dtype):
            model = strategy.build(lambda: keras.Sequential([keras.Input((5,)), _zeros()]))
            model.compile(keras.optimizers.SGD(1.0), "mse")
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        np.testing.assert_array_equal(model.get_weights()[0], -expected)


def rounds_rows_of_embeddings(strategy, folder):
    """TensorFlow gathers no bfloat16."""
    del folder
    ids, y = np.arange(8)[:, None] % 3, np.arange(8.0, dtype="f4")[:, None]
    weights = []
    for dtype in (None, "bfloat16"):
        with _sent(strategy, gradient_dtype=dtype):
            keras.utils.set_random_seed(0)
            model = strategy.build(lambda: keras.Sequential([_embedding(), _zeros()]))
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(ids, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        weights.append(np.concatenate([one.ravel() for one in model.get_weights()]))
    assert not np.array_equal(*weights)
    np.testing.assert_allclose(*weights, rtol=0.02, atol=0.01)


def _embedding():
    return keras.Sequential([keras.layers.Embedding(3, 2), keras.layers.Flatten()])


def _halves(*arrays):
    return [np.split(array, 2) for array in arrays]


def _zeros():
    return keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")


TRANSFERS = {
    one.__name__: one
    for one in (
        counts_the_collectives_of_a_step,
        rounds_gradients_to_bfloat16,
        rounds_rows_of_embeddings,
    )
}
