"""Cases of `test_workers.py`: what a strategy does with several workers."""

import functools
import tempfile
import warnings
from pathlib import Path

import kdist
import keras
import numpy as np
import pytest
import small_models
import tensorflow as tf
from checkpoint_cases import CASES as CHECKPOINT_CASES
from checkpoint_cases import goes_on_with_other_workers
from kdist._upstream.hooks import StepWatch
from kdist.errors import UserError
from refusals import REFUSALS
from replicas import assert_close, assert_equal
from saved_files import SAVES
from transfers import counts_the_collectives_of_a_step
from worker_trainings import X, Y, agree, batches_of_unknown_number, compiled, refused


def names_itself(strategy, folder):
    del folder
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    assert strategy.is_chief == (strategy.worker == 0)
    assert strategy.num_replicas_in_sync == strategy.workers * len(strategy.devices)
    assert f"worker {strategy.worker} of {strategy.workers}" in repr(strategy)


def has_the_chiefs_seed(strategy, folder):
    """Nobody has set one."""
    del folder
    agree(strategy, [float(np.random.uniform()), float(tf.random.uniform(()))])


def stops_with_one(strategy, folder, *, endless=False, asked=True):
    """After the batch, where the workers ask each other then; otherwise after the epoch."""
    del folder

    class Stopping(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)
            if strategy.worker == strategy.workers - 1 and batch == 1:
                self.model.stop_training = True

    if not asked:
        Stopping.stops_in_epoch = False
    batches: list[int] = []
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    if endless:
        data = batches_of_unknown_number(6, 8)
    options = {"epochs": 5, "shuffle": False, "verbose": 0}
    compiled(strategy).fit(data, callbacks=[Stopping()], **options)
    assert batches == ([0, 1] if endless or asked else [0, 1, 2, 3]), batches


def shuffles_alike(strategy, folder):
    """Each row is taken once, also where one worker has drawn numbers of its own before."""
    del folder
    keras.utils.set_random_seed(strategy.worker)
    if strategy.is_chief:
        tf.random.uniform(())
    ones = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = strategy.build(lambda: keras.Sequential([keras.Input((1,)), ones]))
    model.compile(keras.optimizers.SGD(0.0), "mean_absolute_error")
    rows = 2.0 ** np.arange(16)[:, None]
    losses = model.fit(rows, 0 * rows, batch_size=4, epochs=3, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, [np.mean(rows)] * 3, rtol=1e-6)


def starts_with_the_chiefs_weights(strategy, folder):
    """Also where the weights are divided, and each worker would draw others."""
    del folder
    make = lambda: keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])  # noqa: E731
    keras.utils.set_random_seed(strategy.worker)
    found = strategy.build(make).get_weights()
    keras.utils.set_random_seed(0)
    assert_equal(found, make().get_weights())


def trains_with_other_callbacks_on_each(strategy, folder):
    """Some ask after every batch whether to stop: all do, or none."""

    class Saving(keras.callbacks.ModelCheckpoint):
        """Of the chief, as its base class is."""

    class Noting(keras.callbacks.Callback):
        on_chief_only = True

        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)

    batches: list[int] = []
    callbacks = [Saving(folder / "any.keras", save_freq="epoch"), Noting()]
    compiled(strategy).fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert batches == [0, 1, 2, 3] * 2 * strategy.is_chief, batches
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", batch == 1)
    )
    model = compiled(strategy)
    callbacks = [stop] if strategy.is_chief else []
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert model.optimizer.iterations.numpy() == 2


def counts_each_step_of_an_execution(strategy, folder):
    """Many steps may take long together."""
    del folder

    class Steps(StepWatch):
        def __init__(self):
            self.seen = []
            self.step_began = functools.partial(self.seen.append, "began")
            self.step_ended = functools.partial(self.seen.append, "ended")

    model = strategy.build(small_models.mlp)
    model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=3)
    strategy.step_watch = Steps()
    try:
        model.fit(X, Y, batch_size=8, verbose=0)
        assert strategy.step_watch.seen == ["began", "ended"] * 4, strategy.step_watch.seen
    finally:
        del strategy.step_watch


def goes_on_after_a_mistake(strategy, folder):
    """Which all workers have caught, at any place of a fit."""
    del folder
    model = compiled(strategy)
    for part in ("units", "batch_size", "evaluate"):
        with refused("the workers d"):
            if part == "units":
                optimizer = keras.optimizers.SGD(momentum=0.1 * strategy.worker)
                compiled(strategy, optimizer=optimizer).fit(X, Y, verbose=0)
            elif part == "batch_size":
                model.evaluate(X, Y, batch_size=8 + strategy.worker, verbose=0)
            else:
                (model.evaluate if strategy.is_chief else model.predict)(X, verbose=0)
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
        agree(strategy, [float(np.sum(weight)) for weight in model.get_weights()])


def stops_at_the_same_loss(strategy, folder):
    """Where one worker would, as the loss is that of all."""
    del folder
    model = compiled(strategy)
    x = X.copy()
    x[9] = np.nan
    stop = kdist.callbacks.StopAtNonFinite(verbose=0)
    model.fit(x, Y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[stop])
    assert model.optimizer.iterations.numpy() == 2


def measures_the_global_batch(strategy, folder):
    """Against the tape on the whole batch; the chief hears of it."""
    del folder
    seen = []
    telemetry = kdist.callbacks.TrainingTelemetry(every_steps=100, verbose=0)
    telemetry.listen(lambda one: seen.append(one.step))
    model = compiled(strategy)
    weights = model.get_weights()
    model.fit(X[:9], Y[:9], batch_size=9, shuffle=False, verbose=0, callbacks=[telemetry])
    with tf.distribute.get_strategy().scope():
        whole = small_models.mlp()
    whole.set_weights(weights)
    with tf.GradientTape() as tape:
        loss = keras.losses.sparse_categorical_crossentropy(Y[:9], whole(X[:9], training=True))
        loss = tf.reduce_mean(loss) + sum(whole.losses)
    gradients = tape.gradient(loss, whole.trainable_weights)
    measured = telemetry.measurement
    assert_close([*measured.gradients.values()], gradients, rtol=1e-4, atol=1e-6)
    assert seen == ([1] if strategy.is_chief else []), seen


def trains_at_the_chiefs_rate(strategy, folder):
    del folder

    class Lowering(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.5 if strategy.is_chief else 0.25

    rate = 0.5 if strategy.is_chief else 0.25
    scheduling = keras.callbacks.LearningRateScheduler(lambda epoch: rate)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    # The rate is set after an epoch and before one.
    for callback, optimizer in ((Lowering(), "sgd"), (scheduling, scaled)):
        model = compiled(strategy, optimizer=optimizer)
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[callback])
        assert model.optimizer.learning_rate.numpy() == 0.5
        agree(strategy, [float(np.sum(weight)) for weight in model.get_weights()])


def _normalized():
    return small_models.mlp(small_models.synchronized)


def recalibrates(strategy, folder):
    del folder
    model = compiled(strategy, _normalized)
    alone = _normalized()
    alone.set_weights(model.get_weights())
    for one in (model, alone):
        kdist.recalibrate_batch_norm(one, (X[:27], Y[:27]), batch_size=8)
    assert_close(model.get_weights(), alone.get_weights(), rtol=0, atol=1e-5)


def monitors(strategy, folder):
    del folder
    model = compiled(strategy, _normalized)
    monitor = kdist.callbacks.BatchNormMonitor(batch=(X[:8], Y[:8]), verbose=0)
    history = model.fit(
        X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[monitor]
    ).history
    assert "batch_norm_gap" in history
    agree(strategy, {name: [f"{value:.6g}" for value in history[name]] for name in history})


def computes_metrics_that_are_no_sums(strategy, folder):
    """The largest guess of all replicas."""
    del folder

    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.value = self.add_variable((), "zeros", name="value")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

        def result(self):
            return self.value

    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
        model.compile(loss="mse", metrics=[Largest()])
    rows = np.arange(8.0)[:, None]
    for data in (rows, rows[::-1]):
        logs = model.evaluate(data, data, batch_size=8, verbose=0, return_dict=True)
        assert logs["largest"] == 7, logs


def gathers_rows_of_all_types(strategy, folder):
    """Also those that TensorFlow's collectives do not know."""
    del folder
    rows = np.arange(9)
    types = ("uint8", "int16", "bool", "bfloat16", "float16", "uint32", "uint64", "complex64")
    expected = {name: tf.cast(rows, name) for name in (*types, "complex128")}

    @tf.function
    def gathered(parts):
        return strategy.gather(parts, axis=0)

    data = tf.data.Dataset.from_tensors(expected)
    parts = next(iter(strategy.experimental_distribute_dataset(data)))
    for found in (gathered(parts), strategy.gather(parts, axis=0)):
        for name, whole in expected.items():
            assert tf.reduce_all(found[name] == whole), (name, found[name])


def refuses_to_exchange_strings(strategy, folder):
    """The collectives of TensorFlow have only numbers."""
    del folder
    data = tf.data.Dataset.from_tensors(tf.constant(["a", "b", "c"]))
    rows = next(iter(strategy.experimental_distribute_dataset(data)))
    with pytest.raises(UserError, match="tensor of strings .*convert strings to numbers"):
        strategy.gather(rows, axis=0)


def compiles_with_xla(strategy, folder):
    """What lies between two exchanges."""
    del folder
    weights = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        model = strategy.build(_normalized)
        model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=jit_compile)
        model.fit(X, Y, batch_size=12, shuffle=False, verbose=0)
        weights.append(np.concatenate([one.ravel() for one in model.get_weights()]))
    np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-5)


def reduces_as_tensorflow_documents(strategy, folder):
    """Values of replicas are summed; the results of a step are those of the global batch."""
    del folder
    replicas = strategy.num_replicas_in_sync
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )
    total = strategy.reduce("SUM", values, axis=None)
    assert float(total) == replicas * (replicas + 1) / 2, total
    data = tf.data.Dataset.range(10).batch(10)
    (batch,) = strategy.experimental_distribute_dataset(data)
    rows = strategy.run(lambda x: x * 2, (batch,))
    assert float(strategy.reduce("SUM", rows, axis=0)) == 90
    assert float(strategy.reduce("MEAN", rows, axis=0)) == 9
    assert int(strategy.run(tf.reduce_sum, (batch,))) == 45


def trains_on_data_that_may_differ(strategy, folder):
    """Batches of fewer rows than workers, and data that the user has dealt out."""
    del folder
    model = compiled(strategy)
    lone, others = batches_of_unknown_number(3, 1), batches_of_unknown_number(2, 1)
    fit = {"shuffle": False, "verbose": 0}
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(lone, validation_data=others, epochs=2, **fit)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    own = batches_of_unknown_number(2 + strategy.worker, 4 + strategy.worker)
    before = int(model.optimizer.iterations.numpy())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the dataset has auto_shard_policy=OFF|.*ran out of data")
        model.fit(own.with_options(options), **fit)
    assert int(model.optimizer.iterations.numpy()) >= before + strategy.workers + 1
    agree(strategy, [float(np.sum(weight)) for weight in model.get_weights()])


def deals_out_files_like_rows(strategy, folder):
    """TensorFlow's own choice would give each worker another file."""
    model = compiled(strategy)
    with tempfile.TemporaryDirectory() as own:
        for name in "ab":
            Path(own, name).write_text("1\n2\n3\n4\n")
        lines = tf.data.TextLineDataset([f"{own}/a", f"{own}/b"])
        x = tf.data.Dataset.zip(lines, tf.data.Dataset.from_tensor_slices(X[:8]))
        x = x.map(lambda line, row: row).batch(3)
        x = x.apply(tf.data.experimental.assert_cardinality(3))
        guesses = model.predict(x, verbose=0)
    np.testing.assert_allclose(guesses, model.predict(X[:8], batch_size=8, verbose=0), atol=1e-6)


def refuses_to_read_divided_state_alone(strategy, folder):
    del folder
    model = compiled(strategy)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(momentum=0.9), "sparse_categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)
    with refused("reading a divided variable on worker 0, fit on worker 1"):
        if strategy.is_chief:
            model.optimizer.variables[-2].numpy()
        else:
            model.fit(X, Y, verbose=0)


# Cases that two workers with one replica each do not run; larger groups run these cases.
OTHER_CASES = {
    case.__name__: case
    for case in (goes_on_with_other_workers, refuses_to_read_divided_state_alone)
}
CASES = (
    REFUSALS
    | SAVES
    | {name: case for name, case in CHECKPOINT_CASES.items() if name not in OTHER_CASES}
    | {
        case.__name__: case
        for case in (
            counts_the_collectives_of_a_step,
            has_the_chiefs_seed,
            names_itself,
            stops_with_one,
            shuffles_alike,
            starts_with_the_chiefs_weights,
            trains_with_other_callbacks_on_each,
            counts_each_step_of_an_execution,
            goes_on_after_a_mistake,
            stops_at_the_same_loss,
            trains_at_the_chiefs_rate,
            recalibrates,
            monitors,
            measures_the_global_batch,
            computes_metrics_that_are_no_sums,
            gathers_rows_of_all_types,
            refuses_to_exchange_strings,
            compiles_with_xla,
            reduces_as_tensorflow_documents,
            trains_on_data_that_may_differ,
            deals_out_files_like_rows,
        )
    }
    | {
        "stops_with_one_after_the_epoch": functools.partial(stops_with_one, asked=False),
        "stops_with_one_amid_endless_data": functools.partial(
            stops_with_one, asked=False, endless=True
        ),
    }
)
