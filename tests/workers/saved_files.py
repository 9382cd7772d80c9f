"""What several workers write into one folder, and open again."""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from replicas import assert_equal
from worker_trainings import X, Y, compiled, refused


def writes_on_the_chief_alone(strategy, folder):
    own = folder / f"files_{strategy.worker}"
    own.mkdir()
    callbacks = [
        keras.callbacks.ModelCheckpoint(own / "best.keras", monitor="loss", save_best_only=True),
        keras.callbacks.CSVLogger(own / "log.csv"),
    ]
    model = compiled(strategy)
    output = folder / f"printed_{strategy.worker}"
    with output.open("w") as stream, contextlib.redirect_stdout(stream):
        model.fit(X, Y, batch_size=8, epochs=2, verbose=2, callbacks=callbacks)
        model.evaluate(X, Y, batch_size=8, verbose=2)
        model.predict(X, batch_size=8, verbose=2)
    names = {path.name for path in own.iterdir()}
    assert names == ({"best.keras", "log.csv"} if strategy.is_chief else set()), names
    assert bool(output.read_text()) == strategy.is_chief


def saves_and_opens(strategy, folder):
    model = compiled(strategy)
    model.fit(X, Y, batch_size=8, verbose=0)
    path = folder / "saved.keras"
    if strategy.is_chief:
        model.save(path)
    strategy.exchange("the file", None)
    with strategy.scope():
        opened = keras.models.load_model(path)
    assert_equal(model.get_weights(), opened.get_weights())
    opened.fit(X, Y, batch_size=8, verbose=0)


def all_save_to_one_file(strategy, folder):
    """With any options, by any of Keras's functions."""
    model = compiled(strategy)

    def check(name, save, load):
        for _ in range(2):
            save(model, folder / name)
            if (folder / name).is_dir():  # which no worker replaces at one instant
                strategy.exchange("the folder", None)
            with strategy.scope():
                opened = load(folder / name)
            assert_equal(model.get_weights(), opened.get_weights())
            strategy.exchange("what is opened", None)
        names.add(folder / name)

    def load_weights(path):
        opened = compiled(strategy)
        opened.load_weights(path)
        return opened

    names = set()
    load = keras.models.load_model
    check("all.keras", keras.Model.save, load)
    check("all.2.keras", lambda m, path: m.save(path, overwrite=True, include_optimizer=True), load)
    check("all.3.keras", keras.saving.save_model, load)
    check("all_folder", lambda m, path: m.save(path, zipped=False), load)
    check("all.weights.h5", keras.Model.save_weights, load_weights)
    check("all.2.weights.h5", lambda m, path: m.save_weights(path, overwrite=True), load_weights)
    strategy.exchange("the files", None)
    assert {*folder.glob("*all*")} == names


def all_export_to_one_folder(strategy, folder):
    model = compiled(strategy)
    guesses = model.predict(X[:4], verbose=0)
    for _ in range(2):
        model.export(folder / "exported")
    strategy.exchange("the folder", None)
    assert {*folder.glob("*exported*")} == {folder / "exported"}
    with tf.distribute.get_strategy().scope():
        opened = tf.saved_model.load(str(folder / "exported"))
        np.testing.assert_allclose(opened.serve(X[:4]), guesses, atol=1e-6)


def refuses_to_ask_about_a_file(strategy, folder):
    model = compiled(strategy)
    for save, name, option in (
        (model.save, "ask.keras", {"overwrite": False}),
        (model.save_weights, "ask.weights.h5", {"overwrite": False}),
        (model.save_weights, "parts.weights.json", {"max_shard_size": 1}),
    ):
        with contextlib.nullcontext() if strategy.is_chief else refused("on the chief alone"):
            save(folder / name, **option)
        strategy.exchange("the file", None)
        assert (folder / name).exists()


SAVES = {
    one.__name__: one
    for one in (
        writes_on_the_chief_alone,
        saves_and_opens,
        all_save_to_one_file,
        all_export_to_one_folder,
        refuses_to_ask_about_a_file,
    )
}
