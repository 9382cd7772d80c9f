"""Each broken model is named rightly, with its line, and no other cause is."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from broken_models import (
    BROKEN,
    OF_THE_BATCH,
    Broken,
    Centered,
    X,
    Y,
    behind_hidden,
    compiled,
    data,
    norm,
    unseeded_data,
)
from kdist import check_model
from kdist.check.check import Check
from kdist.check.options import CheckOptions
from kdist.errors import UserError
from keras import layers

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def check(broken):
    options = {"replicas": (2,), "steps": 4, "stock": False, "scored": False, **broken.options}
    return Check(broken.build, broken.data, CheckOptions(**options)).result()


@pytest.mark.parametrize("name", BROKEN)
def test_the_cause_is_named_with_its_line(name):
    broken = BROKEN[name]
    result = check(broken)
    assert result.equal == broken.equal, result
    assert {cause.name for cause in result.causes} == {broken.cause}, result
    assert any(broken.line in cause.line for cause in result.causes), result
    assert not result.unexplained, result
    keras.backend.clear_session()


@pytest.mark.parametrize("name", OF_THE_BATCH)
def test_what_is_computed_from_the_whole_batch_is_equal(name):
    result = check(OF_THE_BATCH[name])
    result.assert_equal()
    assert result.causes == []
    keras.backend.clear_session()


def unseeded(shape, dtype=None):
    return np.random.default_rng().normal(size=shape)


def test_several_mistakes_are_named_at_once():
    broken = Broken(
        build=lambda: compiled(
            behind_hidden(norm(), Centered(), layers.Dense(8, kernel_initializer=unseeded))
        ),
        data=unseeded_data,
    )
    result = check(broken)
    names = [cause.name for cause in result.causes]
    assert names == ["data_without_seed", "build_without_seed"], result
    assert "one cause can hide another" in str(result)


@pytest.mark.parametrize(
    ("build", "given", "message"),
    [
        (keras.Sequential, data, "not compiled"),
        (lambda: None, data, "received|returned NoneType"),
        (lambda: compiled(behind_hidden()), lambda: 1 / 0, "division"),
        (
            lambda: compiled(behind_hidden()),
            lambda: tf.data.Dataset.from_tensor_slices((X, Y)),
            r"add \.batch",
        ),
    ],
    ids=["not compiled", "no model", "data", "not in batches"],
)
def test_what_does_not_train_on_one_replica_is_an_error(build, given, message):
    with pytest.raises((UserError, ZeroDivisionError), match=message):
        check_model(build, given, replicas=(2,), steps=2, stock=False)


class Fails(layers.Layer):
    """In the graph, of which TensorFlow only tells the lines in its message."""

    def call(self, x):
        tf.debugging.assert_less(tf.reduce_max(x), -tf.ones((), x.dtype), message="too large")
        return x


def test_an_error_of_a_graph_has_the_line_of_the_user():
    with pytest.raises(UserError, match=r"test_check_broken\.py:\d+: tf\.debugging\.assert_less"):
        check_model(
            lambda: compiled(behind_hidden(Fails())), data, replicas=(2,), steps=2, stock=False
        )


def test_a_model_in_place_of_its_function_is_refused():
    with pytest.raises(UserError, match="without calling it"):
        check_model(compiled(behind_hidden()), data)


def test_too_few_samples_for_an_uneven_batch_are_noted():
    def build():
        return compiled(behind_hidden())

    result = check_model(build, (X[:2], Y[:2]), replicas=(2,), steps=2, stock=False)
    assert result.equal
    assert result.notes == ["no batch was uneven, as there are too few samples"]
