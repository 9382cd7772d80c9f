"""Every layer of Keras, trained on batches that are divided over replicas."""

import keras
import layer_samples
import pytest
import tensorflow as tf
from compared import RATE, ROUNDED, calls_of, failures, grouped, loss_of, tolerance_of, value_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("float64", "without_graph_optimizer_in_module", "small"),
]

CALLS = calls_of("layer_calls.txt", layer_samples.layers(), layer_samples.guessed)


def boxed(images, boxes, labels):
    return {"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}}


NAMES = {name: one for name, one in vars(keras.layers).items() if name[0] != "_"} | {
    "boxed": boxed,
    "keras": keras,
}


class Scale(keras.layers.Layer):
    """Gives what has no weights a gradient."""

    supports_masking = True

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        return x * self.scale


class Layers:
    """A step that trains the layers of expressions."""

    def __init__(self, expressions):
        self.errors = {}
        inputs = {
            name: keras.Input(
                array.shape[1:],
                dtype="string" if array.dtype.kind == "U" else array.dtype.name,
                name=name,
            )
            for name, array in layer_samples.INPUTS.items()
        }
        outputs = {}
        for number, expression in enumerate(expressions):
            kind = "_float32" if "float32" in expression else ""
            given = {
                name: Scale(name=f"scale_{number}_{name}{kind}")(value)
                if "float" in value.dtype
                else value
                for name, value in inputs.items()
                if name in expression
            }
            try:
                outputs[expression] = keras.tree.flatten(eval(expression, NAMES | given))
            except Exception as error:
                self.errors[expression] = f"{type(error).__name__}: {error}"
        self.model = keras.Model(inputs, outputs)

    def __call__(self, inputs):
        weights = [one.value for one in self.model.trainable_weights]
        with tf.GradientTape() as tape:
            made = self.model(inputs, training=True)
            losses = [loss_of(one) for one in made.values()]
            losses = [one for one in [*losses, *self.model.losses] if one is not None]
            loss = tf.add_n(losses or [tf.constant(0.0, "float64")])
        for one, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            if gradient is not None:
                one.assign_sub(RATE * tf.convert_to_tensor(gradient))
        return made

    def state(self):
        return {one.path: value_of(one) for one in self.model.weights}


def test_every_layer_has_a_sample_input():
    assert not [name for name, calls in CALLS.items() if not calls], (
        "add a line to layer_calls.txt for each"
    )


@pytest.mark.parametrize(
    "names", grouped(CALLS, 60, layer_samples.FLOAT32), ids=lambda names: f"{names[0]}-{names[-1]}"
)
def test_layers_on_replicas_are_those_without_a_strategy(names):
    expressions = [call for name in names for call in CALLS[name]]
    tolerance = tolerance_of
    if names[0] in layer_samples.FLOAT32:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
        tolerance = lambda name: ROUNDED  # noqa: E731
    found = failures(Layers, expressions, layer_samples.INPUTS, tolerance)
    assert not found, "\n" + "\n".join(found)
