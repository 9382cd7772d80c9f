"""Each broken model is named rightly, with its line, and no other cause is."""

import keras
import pytest
import tensorflow as tf
from broken_models import (
    BROKEN,
    AddsReplica,
    Broken,
    Centered,
    CenteredByAll,
    Largest,
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


def test_several_mistakes_are_named_at_once():
    """Plain batch norm too, though without it as much differs."""
    broken = Broken(
        build=lambda: compiled(behind_hidden(norm(), Centered()), metrics=[Largest()]),
        data=unseeded_data,
        cause="",
        options={"synchronize": False},
    )
    result = check(broken)
    assert [cause.name for cause in result.causes] == [
        "data_without_seed",
        "unsynchronized_batch_norm",
        "mixing_layer",
        "metric_state",
    ], result
    assert "one cause can hide another" in str(result)


def test_what_no_experiment_shows_is_named_as_a_suspicion():
    broken = Broken(build=lambda: compiled(behind_hidden(AddsReplica())), cause="python_function")
    result = check(broken)
    assert not result.equal
    assert [(cause.name, cause.level) for cause in result.causes] == [
        ("python_function", "suspect")
    ], result
    assert "perhaps 1: a Python function" in str(result)
    assert "cause: not known. It begins at step 1 with loss" in str(result)


def test_the_fix_makes_the_model_equal():
    def build():
        return compiled(behind_hidden(CenteredByAll()))

    check_model(build, data, replicas=(3,), steps=2, stock=False).assert_equal()


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
