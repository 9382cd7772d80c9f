"""The model of a checkpoint as a file, without training."""

import keras
import numpy as np
import pytest
from kdist.callbacks import Checkpoint
from kdist.checkpoint import checkpoint_files, export_model
from kdist.checkpoint.export import restore_weights
from kdist.errors import UserError
from replicas import assert_equal
from resumed_training import (
    STEPS,
    VALIDATION,
    Kill,
    KilledError,
    Terminate,
    Training,
    X,
    compiled,
    network,
)

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


def averaging():
    return keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of two replicas, killed amid the second epoch, and what its model predicted by then."""
    made = tmp_path_factory.mktemp("checkpoints")
    training = Training(compiled(2, averaging))
    with pytest.raises(KilledError):
        training.fit(Kill(STEPS + 3), Checkpoint(made, every_steps=STEPS + 2, verbose=0))
    return made


def test_the_averages_are_exported_as_fit_ends_with_them(folder, tmp_path):
    [checkpoint] = checkpoint_files(folder)
    export_model(checkpoint, tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    assert {type(layer).__module__.partition(".")[0] for layer in opened.layers} == {"keras"}
    arrays, state = checkpoint.read()
    averages = [arrays[state["averages"][name]] for name in state["averages"]]
    assert_equal(opened.trainable_weights, averages)


def test_the_weights_themselves(folder, tmp_path):
    [checkpoint] = checkpoint_files(folder)
    model = export_model(checkpoint, tmp_path / "model.keras", averaged=False)
    arrays, state = checkpoint.read()
    saved = [arrays[name] for name in state["averages"]]
    assert_equal(model.trainable_weights, saved)


def test_a_swap_of_the_averages_is_known(tmp_path):
    """At the end of an epoch they are in the model already."""
    model = network()
    model.compile(averaging(), "sparse_categorical_crossentropy")
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    Training(model, make_callbacks=lambda: [swap]).fit(Checkpoint(tmp_path, verbose=0))
    exported = export_model(checkpoint_files(tmp_path)[0], tmp_path / "model.keras")
    assert np.array_equal(exported.predict(X, verbose=0), model.predict(X, verbose=0))


def test_the_averages_of_a_checkpoint_of_a_validation(tmp_path):
    """They are in the model, and the weights in the place of the averages."""
    training = Training(
        compiled(1, averaging), make_callbacks=lambda: [keras.callbacks.SwapEMAWeights()]
    )
    for folder, kill in (("step", Terminate(STEPS)), ("validation", Terminate(VALIDATION))):
        training.reset()
        with pytest.raises(SystemExit):
            checkpoint = Checkpoint(tmp_path / folder, every_seconds=None, verbose=0)
            training.fit(kill, checkpoint)
    step, validation = (checkpoint_files(tmp_path / one)[0] for one in ("step", "validation"))
    assert (step.epoch, step.batch) == (validation.epoch, validation.batch) == (0, STEPS)
    assert not step.read()[1]["swapped"]
    assert validation.read()[1]["swapped"]
    model = compiled(1, averaging)
    found = {}
    for averaged in (True, False):
        for checkpoint in (step, validation):
            restore_weights(model, checkpoint, averaged=averaged)
            found.setdefault(averaged, []).append(model.get_weights())
    for one, other in found.values():
        assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))
    assert not np.allclose(found[True][0][0], found[False][0][0], atol=1e-3)


def test_a_model_of_a_class_of_its_own_has_to_be_given(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self(X)

        def call(self, x):
            return self.dense(x)

    model = Own()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(X, X[:, :1], verbose=0, callbacks=[Checkpoint(tmp_path, verbose=0)])
    [checkpoint] = checkpoint_files(tmp_path)
    with pytest.raises(
        UserError, match=r"cannot be created .*: pass model=, a model made by the same code"
    ):
        export_model(checkpoint, tmp_path / "model.keras")
    exported = export_model(checkpoint, tmp_path / "model.keras", model=Own())
    assert np.array_equal(exported(X), model(X))
    with pytest.raises(
        UserError, match="was saved from a different model: the checkpoint has model's .*dense/ke"
    ):
        export_model(checkpoint, tmp_path / "model.keras", model=network())


def test_what_cannot_be_exported(folder, tmp_path):
    [checkpoint] = checkpoint_files(folder)
    with pytest.raises(UserError, match='pass a path that ends in ".keras"'):
        export_model(checkpoint, tmp_path / "model.h5")
    with pytest.raises(UserError, match="cannot write .*: No such file or directory"):
        export_model(checkpoint, tmp_path / "missing" / "model.keras")
    damaged = tmp_path / checkpoint.path.name
    damaged.write_bytes(checkpoint.path.read_bytes()[:-1])
    with pytest.raises(
        UserError, match="is damaged: its content has changed since it was written .*; export"
    ):
        export_model(checkpoint_files(tmp_path)[0], tmp_path / "model.keras")
    assert not (tmp_path / "model.keras").exists()
