import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks.image_count import count_images
from kdist.errors import UserError
from tiny_training import IMAGES, images, tiny_fit, tiny_model, traced_model


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_image_of_the_epoch_is_counted_once(replicas):
    model = traced_model(replicas=replicas)
    tiny_fit([], model=model, epochs=2, validate=False)
    assert count_images(model) == IMAGES


def test_sample_weights_do_not_change_the_count():
    model = tiny_model(weighted_metrics=["accuracy"])
    x, y = images()
    model.fit(x, y, sample_weight=np.linspace(0, 3, IMAGES), batch_size=4, verbose=0)
    assert count_images(model) == IMAGES


def test_several_outputs_and_inputs_count_once():
    first, second = keras.Input((3,)), keras.Input((2,))
    joined = keras.layers.Concatenate()([first, second])
    model = keras.Model(
        [first, second], [keras.layers.Dense(1)(joined), keras.layers.Dense(2)(joined)]
    )
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
    data = [np.ones((7, 3)), np.ones((7, 2))]
    model.fit(data, [np.ones((7, 1)), np.ones((7, 2))], verbose=0)
    assert count_images(model) == 7


class OwnStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


class OwnMetrics(keras.Model):
    @property
    def metrics(self):
        return [keras.metrics.Mean(name="loss")]


@pytest.mark.parametrize(
    ("model_class", "reason"), [(OwnStep, "train_step"), (OwnMetrics, "metrics property")]
)
def test_a_model_that_counts_otherwise_is_refused(model_class, reason):
    with pytest.raises(UserError, match=rf"{model_class.__name__}.*{reason}.*total_images="):
        count_images(tiny_model(model_class=model_class))


def test_a_step_put_on_the_model_itself_is_refused():
    model = tiny_model()
    model.train_step = tf.function(lambda data: {})
    with pytest.raises(UserError, match="its own train_step"):
        count_images(model)


def test_a_model_that_was_not_compiled_is_refused():
    with pytest.raises(UserError, match="no average of the loss"):
        count_images(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))


@pytest.fixture
def float16():
    before = keras.config.floatx()
    keras.config.set_floatx("float16")
    yield
    keras.config.set_floatx(before)


@pytest.mark.usefixtures("float16")
def test_a_count_that_would_overflow_is_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(UserError, match="metrics in float16"):
        count_images(model)
