import csv
import json
import re
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest
from kdist.data import Standardization
from kdist.errors import UserError
from kdist.training import model_and_data
from kdist.training.config import TrainConfig
from kdist.training.run import load_data, train
from replicas import assert_close
from small_network import small_model

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


def config(folder, **values):
    small = {"dataset": "sample", "subset": 97, "depth": 10, "width": 1, "batch_size": 16}
    return TrainConfig(**{**small, "replicas": 2, "epochs": 2, "run_dir": str(folder), **values})


def silent(_):
    """Takes a line and prints nothing."""


def train_small(settings, **options):
    """Train a small network in place of the WideResNet: what is tested is the run."""
    with mock.patch.object(model_and_data, "make_model", small_model):
        return train(settings, announce=silent, verbose=0, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """On two replicas, the last batch on one of them alone."""
    lines = []
    settings = config(tmp_path_factory.mktemp("run"), log_dir=str(tmp_path_factory.mktemp("log")))
    return settings, train(settings, announce=lines.append, verbose=0), lines


def table(lines):
    """The rows of the tables among the lines."""
    rows = [line.strip().split("  ", 1) for line in lines if line.startswith("  ")]
    return {name: value.strip() for name, value in rows}


def test_says_what_is_trained_on_what(run):
    settings, _, lines = run
    start = table(
        lines[
            : lines.index(
                "XLA: off, as TensorFlow's own kernels are faster on CPUs; --xla turns it on"
            )
        ]
    )
    devices = start.pop("devices")
    assert re.fullmatch(r"CPU:0, CPU:1 \(.+\)", devices)
    assert start == {
        "replicas": "2",
        "model": "WRN-10-1",
        "global batch": "32 (16 per replica)",
        "learning rate": "0.02 (0.01 for one replica, rule linear)",
        "epochs": "2 at most",
        "run folder": settings.run_dir,
        "dataset": "sample (default fashion_mnist)",
        "subset": "97 (default none)",
        "log_dir": f"{settings.log_dir} (default none)",
    }


def test_says_at_the_end_what_was_reached_and_where_it_is(run):
    settings, result, lines = run
    accuracies = result.history["val_accuracy"]
    best = max(accuracies)
    end = table(lines[-6:])
    assert list(end) == [
        "best epoch",
        "images/s",
        "cumulative training time",
        "model",
        "curve",
        "report",
    ]
    assert end["best epoch"] == f"{accuracies.index(best) + 1} of 2, val_accuracy {best:.4f}"
    rate = result.history["images_per_sec"][1]
    assert end["images/s"] == f"{rate:,.0f} (median after the first epoch)"
    assert end["cumulative training time"] == f"{result.seconds:,.1f} seconds"
    assert Path(end["model"]).is_file()
    assert Path(end["curve"]).is_file()
    assert end["report"] == f"kdist report {settings.run_dir}"


def test_leaves_a_run_folder(run):
    settings, result, _ = run
    folder = result.run_dir
    own_model = {"model", "data", "monitor"}  # of which there is none
    expected = {name: v for name, v in settings.to_dict().items() if name not in own_model}
    assert json.loads(Path(folder, "config.json").read_text()) == expected
    summary = json.loads(Path(folder, "summary.json").read_text())
    assert summary["val_accuracy"] == result.history["val_accuracy"][-1]
    assert summary["epochs"] == 2
    assert summary["images_per_sec"] > 0
    assert summary["seconds"] > 0
    assert summary["devices"] == ["CPU:0", "CPU:1"]
    assert summary["versions"]["keras"] == keras.__version__
    rows = list(csv.DictReader(Path(folder, "history.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {(row["replicas"], row["global_batch"]) for row in rows} == {("2", "32")}
    assert float(rows[1]["val_accuracy"]) == pytest.approx(summary["val_accuracy"], abs=1e-6)
    assert float(rows[1]["images_per_sec"]) > 0


def test_stock_keras_evaluates_the_saved_model(run):
    settings, result, _ = run
    data = load_data(settings, announce=silent)
    model = keras.models.load_model(f"{result.run_dir}/model.keras")
    assert {type(layer).__module__.split(".")[0] for layer in model.layers} == {"keras"}
    images = Standardization.of(data.train_images)(data.test_images)
    _, accuracy = model.evaluate(images, data.test_labels, verbose=0)
    assert accuracy == pytest.approx(result.val_accuracy, abs=1e-6)


class Logging(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["mine"] = epoch + 0.5


def test_a_seeded_run_repeats_itself_and_keeps_what_callbacks_log(tmp_path):
    first, again = (
        train_small(config(tmp_path / name, replicas=1, epochs=1), callbacks=[Logging()])
        for name in ("first", "again")
    )
    assert again.history["mine"][0] == 0.5
    assert "mine" in (tmp_path / "again" / "history.csv").read_text().splitlines()[0]
    assert_close(again.model.get_weights(), first.model.get_weights(), rtol=1e-4, atol=1e-5)


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() >= 4:
            raise KeyboardInterrupt


def test_ctrl_c_saves_what_was_trained(tmp_path):
    settings = config(tmp_path / "run", replicas=1, batch_size=32, subset=96)
    result = train_small(settings, callbacks=[Interrupt()])
    assert result.interrupted
    assert result.epochs == 1
    saved = keras.models.load_model(tmp_path / "run" / "model.keras")
    assert int(saved.optimizer.iterations.numpy()) == 4
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["interrupted"] is True


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    settings = config(
        tmp_path_factory.mktemp("stopped"),
        schedule="cosine",
        warmup_epochs=1,
        momentum=0.9,
        replicas=1,
        batch_size=32,
        subset=96,
        base_lr=0.02,
        target_accuracy=0.01,
        patience=1,
    )
    return train_small(settings)


def test_reaching_the_target_stops_the_run(stopped_run):
    assert stopped_run.reached_target
    assert stopped_run.epochs == 1
    written = json.loads(Path(stopped_run.run_dir, "summary.json").read_text())
    assert (written["reached_target"], written["met_epoch"]) == (True, 1)
    assert 0 < written["met_seconds"] == stopped_run.met_seconds <= stopped_run.seconds


def test_warm_up_and_cosine_end_at_zero(stopped_run):
    optimizer = stopped_run.model.optimizer
    rates = []
    for step in (0, 3, 6):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    np.testing.assert_allclose(rates, [0, 0.02, 0], atol=1e-8)
    assert optimizer.momentum == 0.9
    assert optimizer.nesterov


@pytest.fixture(scope="module")
def run_on_one_image(tmp_path_factory):
    settings = config(
        tmp_path_factory.mktemp("one"),
        subset=1,
        epochs=1,
        schedule="exponential",
        decay_epochs=15,
        optimizer="novograd",
        lr_rule="auto",
        wd=1e-3,
    )
    return train_small(settings)


def test_fewer_images_than_replicas(run_on_one_image):
    assert run_on_one_image.epochs == 1
    assert np.isfinite(run_on_one_image.history["loss"]).all()


def test_a_staircase_and_another_optimizer(run_on_one_image):
    model = run_on_one_image.model
    rates = []
    for step in (0, 15 - 1, 15):
        model.optimizer.iterations.assign(step)
        rates.append(float(model.optimizer.learning_rate))
    np.testing.assert_allclose(rates, np.array([1, 1, 0.1]) * 0.01 * 2**0.5, rtol=1e-5)
    assert model.optimizer.weight_decay_rate == 1e-3
    assert not model.losses  # no penalty besides


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """Timed only: neither validated nor saved."""
    settings = config(
        tmp_path_factory.mktemp("short"),
        optimizer="lars",
        time_budget=0.01,
        target_accuracy=0.01,
        replicas=1,
        validate=False,
        save_model=False,
        telemetry=1,
    )
    return train_small(settings)


def test_lars_trains_the_network(short_run):
    assert np.isfinite(short_run.history["loss"]).all()


def test_a_time_budget_ends_the_run(short_run):
    assert (short_run.epochs, short_run.reached_target) == (1, False)
    assert (short_run.met_epoch, short_run.met_seconds) == (None, None)
    assert short_run.images_per_sec > 0


def test_without_validation_and_saving_there_is_neither(short_run):
    assert short_run.val_accuracy is None
    names = {path.name for path in Path(short_run.run_dir).iterdir()}
    assert names == {"config.json", "history.csv", "summary.json"}


def test_what_is_measured_is_among_an_epochs_values(short_run):
    header = Path(short_run.run_dir, "history.csv").read_text().splitlines()[0].split(",")
    assert {"gradient_norm", "weight_norm"} <= {*header}


@pytest.mark.parametrize(
    "values",
    [
        {"subset": 20_000},
        {"replicas": 9},
        {"schedule": "cosine", "epochs": 1, "warmup_epochs": 0.9, "subset": 16, "replicas": 1},
        {"log_dir": "/proc/version/log"},
    ],
)
def test_nothing_is_left_when_a_run_cannot_start(tmp_path, values):
    with pytest.raises(UserError):
        train(config(tmp_path / "run", **values), announce=silent, verbose=0)
    assert not (tmp_path / "run").exists()


def check_averaged(model):
    averages = model.optimizer._model_variables_moving_average
    for weight, average in zip(model.trainable_weights, averages, strict=True):
        np.testing.assert_allclose(weight.numpy(), average.numpy())


def test_an_average_of_the_weights_is_validated_and_kept(tmp_path):
    settings = config(tmp_path / "run", ema_momentum=0.5, schedule="linear", momentum=0.9)
    result = train_small(settings)
    optimizer = result.model.optimizer
    check_averaged(result.model)
    data = load_data(settings, announce=silent)
    images = Standardization.of(data.train_images)(data.test_images)
    guesses = result.model.predict(images, verbose=0).argmax(1)
    # The last epoch was validated with the average, too.
    assert np.mean(guesses == data.test_labels) == pytest.approx(result.val_accuracy, abs=1e-6)
    optimizer.iterations.assign(8)  # two epochs of 97 images
    assert float(optimizer.learning_rate) == 0


def test_ctrl_c_keeps_the_average(tmp_path):
    settings = config(tmp_path / "run", replicas=1, batch_size=32, ema_momentum=0.5)
    model = train_small(settings, callbacks=[Interrupt()]).model
    check_averaged(model)


def test_ctrl_c_while_the_average_is_validated_keeps_it(tmp_path):
    class InterruptValidation(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            raise KeyboardInterrupt

    settings = config(tmp_path / "run", replicas=1, batch_size=32, ema_momentum=0.5)
    model = train_small(settings, callbacks=[InterruptValidation()]).model
    assert any(np.any(weight.numpy()) for weight in model.trainable_weights)
    check_averaged(model)


def test_ctrl_c_before_the_first_step_leaves_the_weights(tmp_path):
    class InterruptAtOnce(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise KeyboardInterrupt

    settings = config(tmp_path / "run", replicas=1, ema_momentum=0.5)
    model = train_small(settings, callbacks=[InterruptAtOnce()]).model
    assert any(np.any(weight.numpy()) for weight in model.trainable_weights)
