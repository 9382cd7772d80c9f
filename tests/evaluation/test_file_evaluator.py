"""A `.keras` file on data of the user's, against what Keras says of it."""

import keras
import pytest
from kdist.errors import UserError
from kdist.evaluation import EvaluateOptions, evaluate

MINE = """
import keras
import numpy as np

random = np.random.default_rng(0)
x = random.normal(size=(50, 3)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")


class Scale(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs


def doubled(y_true, y_pred):
    return 2 * keras.losses.binary_crossentropy(y_true, y_pred)


def data():
    return (x[:30], y[:30]), (x[30:], y[30:])


def batches(batch_size):
    import tensorflow as tf

    pairs = tf.data.Dataset.from_tensor_slices((x[30:], y[30:]))
    return pairs.batch(batch_size), pairs.batch(batch_size)


def alone():
    return (x, y), None


def wider():
    return (x, y), (np.ones((4, 5), "float32"), np.ones((4, 1)))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of the data and classes, that of the model, and what Keras says of it."""
    folder = tmp_path_factory.mktemp("saved")
    path = folder / "evaluated.py"
    path.write_text(MINE)
    names = {"__name__": "evaluated"}
    exec(compile(MINE, str(path), "exec"), names)
    layers = [keras.Input((3,)), names["Scale"](), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", names["doubled"], metrics=["accuracy", "mae"])
    training, validation = names["data"]()
    model.fit(*training, epochs=2, verbose=0)
    model.save(folder / "model.keras")
    return path, folder / "model.keras", model.evaluate(*validation, verbose=0, return_dict=True)


@pytest.mark.parametrize(("data", "replicas"), [("data", 1), ("data", 3), ("batches", 2)])
def test_a_file_is_evaluated_on_data_of_the_users(saved, data, replicas):
    path, model, expected = saved
    lines = []
    options = EvaluateOptions(data=f"{path}:{data}", replicas=replicas, val_batch_size=3)
    (found,) = evaluate(str(model), options, announce=lines.append)
    assert (found.images, found.weights, found.file) == (20, "saved", "model.keras")
    assert found.loss == pytest.approx(expected["loss"], rel=1e-5)
    assert found.accuracy == pytest.approx(expected["accuracy"], abs=1e-6)
    assert found.metrics == {"mae": pytest.approx(expected["mae"], rel=1e-5)}
    assert len(lines) == 2


def test_what_a_file_cannot_be_evaluated_on(saved, tmp_path):
    path, model, _ = saved

    def refused(words, name=model, **options):
        with pytest.raises(UserError, match=words):
            evaluate(str(name), EvaluateOptions(replicas=1, **options), announce=lambda _: None)

    refused(r"alone\(\) of .* returns no validation data", data=f"{path}:alone")
    refused("model.keras does not take the validation data", data=f"{path}:wider")
    refused("the data of a file has to be given as FILE.py:FUNCTION", data="data")
    refused("received --views mirror, which is for images", data=f"{path}:data", views="mirror")
    refused("received --data .* and a data set", data=f"{path}:data", dataset="sample")
    refused("makes a model that is not trained: pass the run or", name=f"{path}:build")
    other = tmp_path / "other.py"
    other.write_text(MINE.replace("doubled", "twice"))
    refused("is made of doubled, which is not in .*other.py: import it", data=f"{other}:data")
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    plain.save(tmp_path / "plain.keras")
    refused("a model that is not compiled", name=tmp_path / "plain.keras", data=f"{path}:data")
