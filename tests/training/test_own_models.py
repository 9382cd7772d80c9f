"""Runs of a user's model and data, against stock Keras on one replica."""

import json
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.strategies.mirrored_strategy import MirroredStrategy
from kdist.study.sweep_kinds import AccuracySweep, ThroughputSweep
from kdist.study.sweep_run import check_experiment
from kdist.tools.evaluate import EvaluateOptions, evaluate
from kdist.training import resume_run, train
from kdist.training.config import TrainConfig
from kdist.training.model_and_data import load_own_data, make_own_model
from kdist.training.run_record import read_run
from kdist.training.settings import model_name
from kdist.training.user_model.user_functions import load_functions
from replicas import assert_close

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

MODEL = '''
import keras
import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
x = random.normal(size=(50, 3))
y = x @ [[1.0], [-2.0], [0.5]] + 0.1 * random.normal(size=(50, 1))
weights = random.uniform(0.5, 2, size=50)


def build():
    layers = [
        keras.Input((3,), dtype="float64"),
        keras.layers.Dense(4, "tanh", dtype="float64"),
        keras.layers.BatchNormalization(dtype="float64"),
        keras.layers.Dense(1, dtype="float64"),
    ]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def data():
    return (x[:40], y[:40], weights[:40]), (x[40:], y[40:])


def without_validation():
    return (x, y), None


def batches():
    pairs = tf.data.Dataset.from_tensor_slices((x[:40], y[:40]))
    shuffled = pairs.shuffle(40, seed=3, reshuffle_each_iteration=False)
    return shuffled.batch(12), pairs.batch(7)


def of_any_size():
    pairs = tf.data.Dataset.from_tensor_slices((x, y)).batch(12)
    return pairs.filter(lambda *_: True)


def of_any_size_and_order():
    pairs = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48, seed=3).batch(12)
    return pairs.filter(lambda *_: True)


def sized(batch_size):
    pairs = tf.data.Dataset.from_tensor_slices((x[:40], y[:40]))
    return pairs.batch(batch_size), pairs.skip(20).batch(batch_size)


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        part = slice(12 * index, 12 * index + 12)
        return x[part], y[part]


def rows():
    return Rows(), (x[:10], y[:10])


class Own(keras.Model):
    """A train_step and metrics of its own, and no configuration that a file could hold."""

    def __init__(self, layer):
        super().__init__(dtype="float64")
        self.layer = layer
        self.seen = keras.metrics.Mean(name="seen", dtype="float64")

    def call(self, inputs):
        return self.layer(inputs)

    def train_step(self, data):
        inputs, targets = (keras.ops.cast(one, "float64") for one in data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((targets - self(inputs, training=True)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.seen.update_state(loss)
        return {"seen": self.seen.result()}

    def test_step(self, data):
        inputs, targets = (keras.ops.cast(one, "float64") for one in data)
        self.seen.update_state(tf.reduce_mean((targets - self(inputs)) ** 2))
        return {"seen": self.seen.result()}

    @property
    def metrics(self):
        return [self.seen]


def build_own():
    model = Own(keras.layers.Dense(1, dtype="float64"))
    model.compile(keras.optimizers.SGD(0.01))
    return model


class Misconfigured(keras.Sequential):
    def get_config(self):
        return {"units": self.units}  # which nothing sets


def build_misconfigured():
    model = Misconfigured([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def classify():
    layers = [keras.Input((3,)), keras.layers.Dense(1, "sigmoid")]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(1.0), "binary_crossentropy", metrics=["accuracy"])
    return model


def signs():
    return (x[:40], y[:40] > 0), (x[40:], y[40:] > 0)


def divided(batch_size):
    order = np.random.permutation(50)
    pairs = tf.data.Dataset.from_tensor_slices((x[order], y[order]))
    return pairs.take(40).batch(batch_size), pairs.skip(40).batch(batch_size)


def of_two_optimizers():
    model = build_own()
    model.second = keras.optimizers.SGD(0.03)
    return model


def failing():
    raise OSError("gone")


def scheduled():
    model = classify()
    rate = keras.optimizers.schedules.CosineDecay(0.5, 100)
    model.compile(keras.optimizers.SGD(rate), "binary_crossentropy")
    return model


'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def run(path, tmp_path):
    """Trains a function of the file, and notes the lines."""

    def begin(function="build", name="run", **settings):
        values = {"replicas": 2, "epochs": 2, "batch_size": 8, "val_batch_size": 3, **settings}
        own = TrainConfig(model=f"{path}:{function}", run_dir=str(tmp_path / name), **values)
        return train(own, announce=begin.lines.append, verbose=0)

    begin.lines = []
    return begin


def stock(path, function, data, given=(), *, epochs=2, batch=16, rate=None):
    """The model that Keras alone trains, and its history."""
    names = {"__name__": "stock"}
    exec(compile(MODEL, str(path), "exec"), names)
    keras.utils.set_random_seed(0)
    training, validation = names[data](**dict(given))
    model = names[function]()
    model.run_eagerly = True  # sooner than to trace it
    if rate is not None:
        model.optimizer.learning_rate = rate
    arguments = {"x": training, "shuffle": False}
    if isinstance(training, tuple):
        arguments = dict(zip(("x", "y", "sample_weight"), training, strict=False))
        arguments["batch_size"] = batch
    elif isinstance(training, keras.utils.PyDataset):
        del arguments["shuffle"]
    history = model.fit(
        **arguments, validation_data=validation, validation_batch_size=6, epochs=epochs, verbose=0
    )
    return model, history.history


def equal(model, expected):
    assert len(expected.weights) > 1
    assert_close(model.get_weights(), expected.get_weights(), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("function", "data", "replicas", "rate"),
    [
        ("build", "data", 2, 0.01),
        ("build", "batches", 2, None),
        ("build", "rows", 3, None),
        ("build", "sized", 2, 0.02),
    ],
)
def test_a_run_gives_what_stock_keras_gives_on_one_replica(
    run, path, function, data, replicas, rate
):
    sizes = {"batch_size": 16 // replicas, "val_batch_size": 16 // replicas}
    if data in ("batches", "rows"):
        sizes = {"batch_size": 32, "val_batch_size": 32}  # not given
    if data == "sized":
        sizes["val_batch_size"] = 32
    rule = {"lr_rule": "none"} if data == "data" else {}
    result = run(function, data=data, replicas=replicas, **sizes, **rule)
    given = {"batch_size": 16} if data == "sized" else {}
    batch = 16 // replicas * replicas
    expected, history = stock(path, function, data, given, batch=batch, rate=rate)
    equal(result.model, expected)
    for name in ("val_loss", "val_mae", "loss"):
        np.testing.assert_allclose(result.history[name], history[name], rtol=1e-6)
    opened = keras.models.load_model(f"{result.run_dir}/model.keras")
    equal(opened, expected)


def test_weights_are_saved_where_a_configuration_raises(run, tmp_path):
    trained = run("build_misconfigured", epochs=1, replicas=1).model
    lines = "\n".join(run.lines)
    assert "cannot be saved as a whole (AttributeError: 'Misconfigured' object has no" in lines
    opened = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    opened.load_weights(tmp_path / "run" / "model.weights.h5")
    equal(opened, trained)


@pytest.fixture(scope="module")
def finished(path, tmp_path_factory):
    """The result of a run, and its lines."""
    lines = []
    folder = str(tmp_path_factory.mktemp("finished") / "run")
    sizes = {"replicas": 2, "epochs": 2, "batch_size": 8, "val_batch_size": 3}
    settings = TrainConfig(model=f"{path}:build", run_dir=folder, checkpoint_every=1e-9, **sizes)
    return train(settings, announce=lines.append, verbose=0), "\n".join(lines)


def test_the_files_of_a_run_name_the_users_model(finished, path):
    result, lines = finished
    summary = json.loads(Path(result.run_dir, "summary.json").read_text())
    assert summary["data"] == "data() of mine.py"
    assert (summary["training_images"], summary["validation_images"]) == (40, 10)
    assert (summary["global_batch"], summary["replicas"]) == (16, 2)
    assert summary["learning_rate"] == pytest.approx(0.02)  # scaled
    assert summary["val_accuracy"] is None
    settings = json.loads(Path(result.run_dir, "config.json").read_text())
    assert settings["model"] == f"{path}:build"
    for name in ("depth", "dataset", "optimizer", "base_lr", "target_accuracy"):
        assert name not in settings
    assert "mine:build" in lines
    assert "val_loss" in lines
    assert "WideResNet" not in lines
    assert len(result.history["images_per_sec"]) == 2
    assert model_name(settings) == "mine:build"


def test_a_step_of_the_users_own_is_trained_resumed_and_evaluated(run, path, tmp_path):
    """On one replica, where any train_step gives what it gives under stock Keras."""
    settings = {"replicas": 1, "batch_size": 16, "data": "without_validation"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = run("build_own", **settings, epochs=4)
        run("build_own", "parts", **settings, epochs=2, checkpoint_every=1e-9)
        resumed = resume_run(tmp_path / "parts", {"epochs": 4}, verbose=0, announce=print)
        expected, _ = stock(path, "build_own", "without_validation", epochs=4)
    equal(whole.model, expected)
    equal(resumed.model, expected)
    assert "Own cannot be saved as a whole" in "\n".join(run.lines)
    expected.load_weights(tmp_path / "parts" / "model.weights.h5")
    equal(expected, whole.model)
    assert resume_run(tmp_path / "parts", announce=run.lines.append) is None  # it is finished
    assert len(whole.history["images_per_sec"]) == 4
    with pytest.raises(UserError, match=r"without_validation\(\) of .* returns no validation data"):
        evaluate(whole.run_dir, announce=lambda _: None)


def test_a_run_is_resumed_on_other_replicas(run, path, tmp_path):
    expected, history = stock(path, "build", "data", epochs=4, rate=0.02)
    run(name="parts", epochs=2, checkpoint_every=1e-9)
    resumed = resume_run(tmp_path / "parts", {"epochs": 4, "replicas": 3}, verbose=0)
    equal(resumed.model, expected)
    assert float(resumed.model.optimizer.learning_rate.numpy()) == pytest.approx(0.02)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras's, after an epoch
def test_a_resumed_run_has_the_order_of_data_of_any_size(run, tmp_path):
    """To read their first batch, for its size, changes the order of what is read next."""
    sizes = {"replicas": 1, "batch_size": 32, "val_batch_size": 32}
    settings = {"data": "of_any_size_and_order", **sizes}
    whole = run("build", **settings, epochs=3)
    run("build", "parts", **settings, epochs=1, checkpoint_every=1e-9)
    resumed = resume_run(tmp_path / "parts", {"epochs": 3}, verbose=0, announce=print)
    equal(resumed.model, whole.model)


def test_a_run_of_other_data_is_not_resumed(run, path, tmp_path):
    run(name="parts", epochs=1, replicas=1, checkpoint_every=1e-9)
    source = path.read_text()
    try:
        # Of another length, or Python would take the bytecode of the same second for it.
        path.write_text(source.replace("default_rng(0)", "default_rng(10)"))
        with pytest.raises(UserError, match="SHA-256"):
            resume_run(tmp_path / "parts", {"epochs": 2}, verbose=0, announce=print)
    finally:
        path.write_text(source)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_run_is_evaluated_on_its_validation_data(finished, replicas):
    result, _ = finished
    options = EvaluateOptions(replicas=replicas)
    lines = []
    (found,) = evaluate(result.run_dir, options, announce=lines.append)
    assert (found.samples, found.epoch) == (10, 2)
    assert list(found.metrics) == ["loss", "mae"]
    for name, value in found.metrics.items():
        assert value == pytest.approx(result.history[f"val_{name}"][-1], rel=1e-6)
    assert lines[0].split() == ["epoch", "step", "samples", "loss", "mae", "weights", "file"]


def test_samples_divided_at_random_are_evaluated_as_in_the_run(run):
    result = run(data="divided", seed=7, epochs=1, replicas=1, val_batch_size=32)
    (found,) = evaluate(result.run_dir, EvaluateOptions(replicas=1), announce=lambda _: None)
    assert found.metrics["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-6)


def test_a_run_whose_file_has_moved_is_resumed_from_its_new_place(run, path, tmp_path):
    first, second = (tmp_path / name / "moved.py" for name in ("first", "second"))
    for place in (first, second):
        place.parent.mkdir()
    first.write_text(path.read_text())
    settings = {"epochs": 1, "replicas": 1, "checkpoint_every": 1e-9, "batch_size": 16}
    folder = str(tmp_path / "run")
    train(
        TrainConfig(model=f"{first}:build", run_dir=folder, **settings),
        announce=run.lines.append,
        verbose=0,
    )
    with pytest.raises(UserError, match="was trained with model=.*, received model="):
        resume_run(folder, {"epochs": 2, "model": f"{path}:build"})
    first.rename(second)
    with pytest.raises(UserError, match=r"there is no file .*first/moved\.py: check the path"):
        resume_run(folder, {"epochs": 2})
    changes = {"epochs": 2, "model": f"{second}:build"}
    resumed = resume_run(folder, changes, verbose=0, announce=run.lines.append)
    assert resumed.epochs == 2
    whole = run(**{**settings, "epochs": 2}, name="whole")
    equal(resumed.model, whole.model)
    settings = json.loads(Path(folder, "config.json").read_text())
    assert settings["model"] == f"{second}:build"


def test_all_rates_of_a_resumed_run_are_scaled_once(path):
    """Also where no checkpoint has them yet."""
    config = TrainConfig(model=f"{path}:of_two_optimizers", replicas=2, batch_size=8)
    functions = load_functions(config.model, "without_validation")
    strategy = MirroredStrategy(replicas=2)
    plan, data = load_own_data(config, functions, replicas=2)
    models = [
        make_own_model(config, functions, data, strategy, plan, rate=rate) for rate in (None, 0.5)
    ]
    rates = [
        [float(one.learning_rate.numpy()) for one in (model.optimizer, model.second)]
        for model in models
    ]
    np.testing.assert_allclose(rates, [[0.02, 0.06], [0.5, 0.06]])


def test_a_target_stops_a_run_that_monitors_it(run):
    target = {"monitor": "val_accuracy", "target_accuracy": 0.01, "patience": 1, "data": "signs"}
    result = run("classify", epochs=5, **target)
    assert (result.epochs, result.reached_target) == (1, True)
    assert read_run(Path(result.run_dir)).summary_number("met_epoch") == 1


def test_a_schedule_of_the_users_is_left_alone(run):
    result = run("scheduled", data="signs", epochs=1)
    assert isinstance(result.model.optimizer._learning_rate, keras.optimizers.schedules.CosineDecay)


@pytest.mark.parametrize(
    ("function", "settings", "words"),
    [
        (
            "build",
            {"data": "batches"},
            "received --batch-size 8, but batches.. of .* returns batches",
        ),
        ("build", {"monitor": "val_auc"}, "needs val_auc, but epoch 1 reported .*val_mae"),
        (
            "build",
            {"data": "without_validation", "monitor": "val_mae"},
            "monitor=val_mae needs validation data, but without_validation.. returns none",
        ),
        ("failing", {}, r"mine.py:\d+: .*OSError: gone"),
        ("nothing", {}, "has no function nothing"),
        ("data", {}, "data.. returned tuple, expected a compiled keras.Model"),
    ],
)
def test_what_is_wrong_is_told_and_leaves_nothing(run, tmp_path, function, settings, words):
    with pytest.raises(UserError, match=words):
        run(function, replicas=1, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras's, after an epoch
def test_the_batch_of_data_of_any_size_is_that_of_the_first(run):
    unknown = {"data": "of_any_size", "replicas": 1, "batch_size": 32, "val_batch_size": 32}
    result = run("build", **unknown, epochs=1)
    summary = json.loads(Path(result.run_dir, "summary.json").read_text())
    assert (summary["global_batch"], summary["training_images"]) == (12, None)
    assert tf.executing_eagerly()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 10}, "if model=.*build: leave out depth, or leave out the model$"),
        ({"base_lr": 0.1, "wd": 0.0}, "base_lr=0.1 has no effect if model="),
        ({"target_accuracy": 0.9}, "target_accuracy=0.9 has no effect if monitor=None"),
        ({"patience": 3}, "patience=3 has no effect"),
        ({"monitor": "val_auc", "validate": False}, "needs validation, but validate=False"),
        ({"monitor": "val_loss"}, "that rises, received monitor=val_loss"),
        ({"data": "other.py:data"}, "there is no file other.py"),
    ],
)
def test_settings_of_the_wide_resnet_are_refused(path, settings, words):
    with pytest.raises(UserError, match=words):
        TrainConfig(model=f"{path}:build", **settings)


@pytest.mark.parametrize("name", ["data", "monitor"])
def test_settings_of_a_users_model_are_refused_without_one(name):
    with pytest.raises(UserError, match=f"{name}=x has no effect if model=None.*, or pass model$"):
        TrainConfig(**{name: "x"})


def test_a_sweep_gives_its_points_the_users_model(path, monkeypatch):
    """From any folder; what it cannot vary, it refuses."""
    monkeypatch.chdir(path.parent)
    own = {"model": TrainConfig(model="mine.py:build").model}
    assert own == {"model": f"{path}:build"}
    options = {"batch_sizes": [8], "replicas": [1, 2], "epochs": 2, "rounds": 1}
    experiment = ThroughputSweep(train=own, **options)
    check_experiment(experiment)
    assert all(point.config["model"] == own["model"] for point in experiment.make_points())
    aims = {"lr_rules": ["none"], "base_lr": 0.1, "base_batch": 32, "seeds": 1}
    with pytest.raises(UserError, match="an accuracy sweep cannot vary it"):
        AccuracySweep(train=own, batch_sizes=[8], replicas=[1], **aims)


@pytest.mark.parametrize("model", ["mine", "mine.py", "mine.txt:build", "gone.py:build"])
def test_a_model_is_named_by_file_and_function(model):
    with pytest.raises(UserError, match=r"FILE.py:FUNCTION|no file gone.py: check the path"):
        TrainConfig(model=model)
