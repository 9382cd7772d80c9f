"""What several workers refuse, all of them with the same message, and then go on."""

import keras
import small_models
from worker_trainings import X, Y, compiled, refused


def compares_batches(strategy, folder):
    del folder
    model = compiled(strategy)
    rows = 32 if strategy.is_chief else 16
    with refused("fit", "the number of batches is 4 on worker 0, 2 on worker"):
        model.fit(X[:rows], Y[:rows], batch_size=8, verbose=0)
    model.fit(X, Y, batch_size=8, verbose=0)  # in step again


def compares_models(strategy, folder):
    del folder
    units = 3 if strategy.is_chief else 4
    with refused("making a variable", "(6, 3)", "(6, 4)"):
        strategy.build(lambda: keras.Sequential([keras.Input((6,)), keras.layers.Dense(units)]))


def compares_optimizers(strategy, folder):
    del folder
    optimizer = keras.optimizers.SGD(momentum=0.9 if strategy.is_chief else 0.8)
    with refused("optimizer.momentum is 0.9 on worker 0, 0.8 on worker 1"):
        compiled(strategy, optimizer=optimizer).fit(X, Y, batch_size=8, verbose=0)


def compares_settings(strategy, folder):
    """Also after one worker has made a model that the others have not."""
    del folder
    keras.Sequential([keras.Input((6,))] + [keras.layers.Dense(2)] * strategy.worker)
    model = compiled(strategy)
    model.fit(X, Y, batch_size=8, verbose=0)
    rate = 0.1 if strategy.is_chief else 0.2
    schedule = keras.optimizers.schedules.ExponentialDecay(rate, 10, 0.9)
    with refused("optimizer.learning_rate.initial_learning_rate is 0.1 on worker 0, 0.2 on"):
        compiled(strategy, optimizer=keras.optimizers.SGD(schedule)).fit(X, Y, verbose=0)
    layers = [keras.Input((6,)), keras.layers.Dense(3, kernel_constraint=_norm(rate))]
    with refused("layers[1].kernel_constraint.max_value is 0.1 on worker 0, 0.2 on worker 1"):
        compiled(strategy, lambda: keras.Sequential(layers)).fit(X, Y, verbose=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=strategy.is_chief)
    model.compile("sgd", loss)
    with refused("loss.from_logits is True on worker 0, False on worker 1"):
        model.evaluate(X, Y, verbose=0)


def _norm(value):
    return keras.constraints.MaxNorm(value)


def compares_what_is_done(strategy, folder):
    del folder
    model = compiled(strategy)
    with refused("different things", "evaluate on worker 0", "fit on worker"):
        (model.evaluate if strategy.is_chief else model.fit)(X, Y, batch_size=8, verbose=0)


def refuses_xla(strategy, folder):
    del folder
    model = strategy.build(small_models.mlp)
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
    with refused("XLA cannot compile a step that spans several workers"):
        model.fit(X, Y, batch_size=8, verbose=0)


def refuses_callbacks_for_one_worker(strategy, folder):
    model = compiled(strategy)
    callback = keras.callbacks.BackupAndRestore(folder / "backup")
    with refused("BackupAndRestore is for one worker", "kdist.callbacks.Checkpoint"):
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[callback])


REFUSALS = {
    one.__name__: one
    for one in (
        compares_batches,
        compares_models,
        compares_optimizers,
        compares_settings,
        compares_what_is_done,
        refuses_xla,
        refuses_callbacks_for_one_worker,
    )
}
