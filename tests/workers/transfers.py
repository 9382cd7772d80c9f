"""How often workers send each other something in a step."""

import contextlib

import kdist
import keras
import pytest
import tensorflow as tf
from replicas import assert_equal
from worker_trainings import X, Y

NORMALIZATIONS = 2


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "bucket_bytes", 1)
        model = _trained(strategy)
    assert_equal(weights, model.get_weights())
