import gc
import weakref

import tensorflow as tf
from kdist._upstream.graphs import forget_custom_gradients


@tf.custom_gradient
def twice(x):
    return 2 * x, lambda dy: 2 * dy


def test_tensorflow_keeps_a_graph_until_its_custom_gradients_are_forgotten():
    """If TensorFlow keeps none, nothing has to be forgotten."""
    function = tf.function(twice).get_concrete_function(tf.TensorSpec(()))
    graph = weakref.ref(function.graph)
    del function
    gc.collect()
    assert graph() is not None
    forget_custom_gradients()
    gc.collect()
    assert graph() is None


def test_a_step_that_was_traced_trains_on():
    weight = tf.Variable(1.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = twice(weight)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    assert float(step()) == 2
    forget_custom_gradients()
    assert float(step()) == -2
