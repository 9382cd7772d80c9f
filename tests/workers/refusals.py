"""What several workers refuse, all of them with the same message, and then go on."""

import keras
import pytest
import tensorflow as tf
from worker_trainings import X, Y, batches_of_unknown_number, compiled, refused


def compares_batches(strategy, folder):
    del folder
    model = compiled(strategy)
    rows = 32 if strategy.is_chief else 16
    with refused("fit", "the number of batches is 4 on worker 0, 2 on worker"):
        model.fit(X[:rows], Y[:rows], batch_size=8, verbose=0)
    model.fit(X, Y, batch_size=8, verbose=0)  # in step again


def compares_data(strategy, folder):
    """Where the number of batches is the same, or is not known."""
    del folder
    chief, model = strategy.is_chief, compiled(strategy)
    fit = {"batch_size": 8, "verbose": 0}
    with refused("fit: the batch size is 16 on worker 0, 18 on worker 1"):
        model.fit(X, Y, batch_size=16 if chief else 18, verbose=0)
    rows = 32 if chief else 30
    for name in ("fit", "evaluate", "predict"):
        data = (X[:rows],) if name == "predict" else (X[:rows], Y[:rows])
        with refused(f"{name}: the number of rows is 32 on worker 0, 30 on worker 1"):
            getattr(model, name)(*data, **fit)
    with refused("shuffle is True on worker 0, False on worker 1"):
        model.fit(X, Y, shuffle=chief, **fit)
    with refused("class_weight.0 is 1.0 on worker 0, 2.0 on worker 1"):
        model.fit(X, Y, class_weight={0: 1.0 if chief else 2.0}, **fit)
    data = batches_of_unknown_number(4 if chief else 2, 8)
    read = refused("the number of batches read in it", "is 4 on worker 0, 2 on worker 1")
    with read, pytest.warns(UserWarning, match="ran out of data"):
        model.fit(data, epochs=2, shuffle=False, verbose=0)
    model.fit(X, Y, **fit)


def compares_arguments(strategy, folder):
    del folder
    chief, model = strategy.is_chief, compiled(strategy)
    for name, values in (
        ("epochs", (1, 3)),
        ("initial_epoch", (0, 1)),
        ("validation_freq", (1, 2)),
    ):
        with refused(f"fit: {name} is {values[0]} on worker 0, {values[1]} on worker 1"):
            model.fit(X, Y, verbose=0, **{name: values[not chief]})
    with refused("fit: validation_data is given on worker 0, not given on worker 1"):
        model.fit(X, Y, verbose=0, validation_data=(X, Y) if chief else None)


def compares_models(strategy, folder):
    del folder
    units = 3 if strategy.is_chief else 4
    with refused("making a variable", "(6, 3)", "(6, 4)"):
        strategy.build(lambda: keras.Sequential([keras.Input((6,)), keras.layers.Dense(units)]))


def compares_settings(strategy, folder):
    """Also after one worker has made a model that the others have not."""
    del folder
    keras.Sequential([keras.Input((6,))] + [keras.layers.Dense(2)] * strategy.worker)
    model = compiled(strategy)
    model.fit(X, Y, batch_size=8, verbose=0)
    number = 0.25 if strategy.is_chief else 0.75
    schedule = keras.optimizers.schedules.ExponentialDecay(number, 10, 0.9)
    layers = [keras.Input((6,)), keras.layers.Dense(3, kernel_constraint=_norm(number))]
    for different in (
        compiled(strategy, optimizer=keras.optimizers.SGD(momentum=number)),
        compiled(strategy, optimizer=keras.optimizers.SGD(schedule)),
        compiled(strategy, lambda: keras.Sequential(layers)),
    ):
        with refused("the first call of a step: Const", "0.25) in", "0.75) in"):
            different.fit(X, Y, batch_size=8, verbose=0)
    reduction = "sum" if strategy.is_chief else "sum_over_batch_size"
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(reduction=reduction))
    with refused("the first call of a step"):
        model.evaluate(X, Y, verbose=0)


def compares_numbers_of_a_step(strategy, folder):
    """That no configuration has."""
    del folder
    factor = 2.5 if strategy.is_chief else 3.5

    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = factor * self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    def make():
        inputs = keras.Input((6,))
        return Own(inputs, _classes()(inputs))

    with refused("2.5) in", "3.5) in", "refusals.py:", "loss = factor"):
        compiled(strategy, make).fit(X, Y, batch_size=8, verbose=0)


def _norm(value):
    return keras.constraints.MaxNorm(value)


def compares_what_is_done(strategy, folder):
    del folder
    model = compiled(strategy)
    with refused("different things", "evaluate on worker 0", "fit on worker"):
        (model.evaluate if strategy.is_chief else model.fit)(X, Y, batch_size=8, verbose=0)


def compares_steps(strategy, folder):
    """Before they wait for each other's values: the same layers, that compute something else."""
    del folder

    class Own(keras.layers.Layer):
        def call(self, x):
            return tf.sin(x) if strategy.is_chief else tf.cos(x)

    model = compiled(strategy, lambda: keras.Sequential([keras.Input((6,)), Own(), _classes()]))
    with refused("the first call of a step", "Sin(", "Cos(", "refusals.py:"):
        model.fit(X, Y, batch_size=8, verbose=0)


def _classes():
    return keras.layers.Dense(3, activation="softmax")


def refuses_callbacks_for_one_worker(strategy, folder):
    model = compiled(strategy)
    callback = keras.callbacks.BackupAndRestore(folder / "backup")
    with refused("BackupAndRestore works with one worker only", "kdist.callbacks.Checkpoint"):
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[callback])


REFUSALS = {
    one.__name__: one
    for one in (
        compares_batches,
        compares_data,
        compares_arguments,
        compares_models,
        compares_settings,
        compares_numbers_of_a_step,
        compares_what_is_done,
        compares_steps,
        refuses_callbacks_for_one_worker,
    )
}
