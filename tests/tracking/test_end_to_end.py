"""One tiny fit with every tracker, and what the programs it is meant for find in its files."""

import importlib.metadata
import json
import platform
import subprocess
import sys

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
import wandb
from kdist.callbacks import (
    BatchNormMonitor,
    PrintThroughput,
    TrainingTelemetry,
)
from kdist.strategies.hardware import device_names
from kdist.tracking import tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorflow import make_ndarray

FAKE = "5f4dcc3b5aa765d61d8327deb882cf99fa1cafe0"
EPOCHS, STEPS = 2, 4
METRICS = {
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "learning_rate",
    "images_per_sec",
    "batch_norm_gap",
    "batch_norm_replica_gap",
    "loss_in_training_mode",
    "loss_in_inference_mode",
    "gradient_norm",
    "weight_norm",
}
MADE_WITH = {
    "kdist": importlib.metadata.version("kdist"),
    "tensorflow": tf.__version__,
    "keras": keras.__version__,
    "numpy": np.__version__,
    "python": platform.python_version(),
}
HYPERPARAMETERS = {"base_lr": 0.05, "optimizer": "sgd", "nesterov": False, "momentum": None}


def network():
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(2)]
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Two epochs of four steps on two replicas, a trial of a search, with a key all around it."""
    folder = tmp_path_factory.mktemp("search") / "trial"
    folder.mkdir()
    strategy = kdist.MirroredStrategy(replicas=2)
    model = strategy.build(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    random = np.random.default_rng(0)
    images = random.normal(size=(30, 4)).astype("float32")
    labels = random.integers(0, 2, 30)
    measured = {}
    telemetry = TrainingTelemetry(every_steps=5, verbose=0)
    telemetry.listen(lambda one: measured.update({one.step: one}))
    trackers = tracking(
        "wandb",
        "tensorboard",
        folder=folder,
        config={"global_batch": 8, "width": 3, "data_dir": f"/home/{FAKE}"},
        group="a search",
        run_name="trial 7",
        every_batches=3,
        hyperparameters=HYPERPARAMETERS,
        telemetry=telemetry,
        verbose=0,
    )
    wandb.teardown()  # it reads the environment once
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", FAKE)
        patch.setenv("MY_TOKEN", f"my-{FAKE}")
        patch.setattr(sys, "argv", ["kdist", "train", f"--api-key={FAKE}"])
        history = model.fit(
            images,
            labels,
            batch_size=8,
            epochs=EPOCHS,
            validation_data=(images, labels),
            verbose=0,
            callbacks=[
                PrintThroughput(verbose=0),
                BatchNormMonitor(batch=(images[:8], labels[:8]), verbose=0),
                telemetry,
                *trackers,
            ],
        )
    return folder, history.history, measured


@pytest.fixture(scope="module")
def folder(fitted):
    return fitted[0]


@pytest.fixture(scope="module")
def measured(fitted):
    """What `TrainingTelemetry` measured, by step."""
    assert list(fitted[2]) == [1, 5]
    return fitted[2]


@pytest.fixture(scope="module")
def table(fitted):
    """What Keras itself kept of each epoch, for the others to agree with."""
    values = fitted[1] | {"learning_rate": [0.05] * EPOCHS}
    assert set(values) == METRICS
    return [{name: column[epoch] for name, column in values.items()} for epoch in range(EPOCHS)]


@pytest.fixture(scope="module")
def records(folder):
    """What wandb's own reader finds in the run's file, by kind."""
    (path,) = (folder / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        found.setdefault(record["type"], []).append(record.get(record["type"], {}))
    return found


def test_wandb_has_every_metric_of_every_epoch_once_over_the_epochs(records, table):
    rows = [item["item"] for item in records["history"] if "epoch/epoch" in item["item"]]
    assert [row["epoch/epoch"] for row in rows] == [1, 2]
    assert 0 < rows[0]["epoch/seconds"] < rows[1]["epoch/seconds"]
    for row, line in zip(rows, table, strict=True):
        assert {name for name in row if name[0] != "_"} == {
            f"epoch/{name}" for name in (*METRICS, "epoch", "seconds")
        }
        for name, value in line.items():
            assert float(row[f"epoch/{name}"]) == pytest.approx(value, nan_ok=True)
    axes = {metric.get("glob_name"): metric.get("step_metric") for metric in records["metric"]}
    assert axes["epoch/*"] == "epoch/epoch"
    assert axes["batch/*"] == "batch/batch_step"


def test_wandb_has_the_batches_that_were_asked_for(records):
    rows = [item["item"] for item in records["history"] if "batch/loss" in item["item"]]
    assert [row["batch/batch_step"] for row in rows] == [3, 6]
    assert [row["batch/learning_rate"] for row in rows] == [pytest.approx(0.05)] * 2


def summarized(records):
    """The last value of everything in the run's summary."""
    return {name: value for one in records["summary"] for name, value in one["update"].items()}


def max_of(table, name):
    return max(line[name] for line in table)


def test_wandb_has_the_best_values_and_the_seconds_in_its_summary(records, table):
    summary = summarized(records)
    assert summary["best_val_accuracy"] == pytest.approx(max_of(table, "val_accuracy"))
    assert summary["best_loss"] == pytest.approx(min(line["loss"] for line in table))
    assert summary["seconds"] == summary["epoch/seconds"]


def test_wandb_has_the_config_and_the_group(records):
    (run,) = records["run"]
    config = run["config"]["update"]
    assert config.pop("_wandb") == {}
    assert config == {
        "replicas": 2,
        "device": device_names(("CPU:0",))[0],
        "versions": MADE_WITH,
        "global_batch": 8,
        "width": 3,
        **HYPERPARAMETERS,
    }
    assert (run["run_group"], run["display_name"]) == ("a search", "trial 7")
    assert records["exit"][-1].get("exit_code", 0) == 0


def test_wandb_would_send_the_run(folder):
    (path,) = (folder / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "sync", "--dry-run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Would sync 1 run(s)" in done.stderr + done.stdout


def test_no_key_is_in_any_file(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 6
    for path in files:
        assert FAKE.encode() not in path.read_bytes(), path


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def scalars(folder):
    events = read(folder)
    return {
        tag: [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def test_tensorboard_has_every_scalar_and_the_graph(folder, table):
    training = scalars(folder / "tensorboard" / "train")
    validation = scalars(folder / "tensorboard" / "validation")
    graph = training.pop("keras")
    assert json.loads(graph[0][1].item())["class_name"] == "Sequential"
    assert set(validation) == {"epoch_loss", "epoch_accuracy"}
    seconds = [value for _, value in training.pop("epoch_seconds")]
    assert 0 < seconds[0] < seconds[1]
    assert set(training) == {f"epoch_{name}" for name in METRICS if not name.startswith("val_")}
    for found, prefix in ((training, ""), (validation, "val_")):
        for tag, events in found.items():
            assert [step for step, _ in events] == [1, 2]
            name = prefix + tag.removeprefix("epoch_")
            for (_, value), line in zip(events, table, strict=True):
                assert value == pytest.approx(line[name], nan_ok=True)


def test_tensorboard_has_the_best_values_the_device_and_the_versions(folder, table):
    found = scalars(folder / "tensorboard")
    assert found["best_val_accuracy"][-1] == (2, pytest.approx(max_of(table, "val_accuracy")))
    about = {"device": device_names(("CPU:0",))[0], **MADE_WITH}
    assert {name: found[name][0][1].item().decode() for name in about} == about


def test_tensorboard_has_the_batches_that_were_asked_for(folder):
    batches = scalars(folder / "tensorboard" / "batches")
    assert set(batches) == {"batch_loss", "batch_accuracy", "batch_learning_rate"}
    assert {tuple(step for step, _ in events) for events in batches.values()} == {(3, 6)}


def test_tensorboard_has_the_hyperparameters(folder):
    data = read(folder / "tensorboard").PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(data[metadata.SESSION_START_INFO_TAG])
    assert start.group_name == "trial 7"
    assert start.hparams["base_lr"].number_value == 0.05
    assert start.hparams["optimizer"].string_value == "sgd"
    assert start.hparams["nesterov"].bool_value is False
    assert set(start.hparams) == {"base_lr", "optimizer", "nesterov"}
    assert metadata.SESSION_END_INFO_TAG in data


def arrays_of(measurement):
    parts = {"weights": measurement.weights, "gradients": measurement.gradients}
    return {
        f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
    }


def test_tensorboard_has_the_telemetry_as_its_own_histograms(folder, measured):
    events = EventAccumulator(str(folder / "tensorboard" / "telemetry"), size_guidance={})
    tensors = events.Reload().Tags()["tensors"]
    names = set(arrays_of(measured[1]))
    assert set(tensors) == names | {f"{name}/norm" for name in names}
    for step, measurement in measured.items():
        for name, array in arrays_of(measurement).items():
            assert events.SummaryMetadata(name).plugin_data.plugin_name == "histograms"
            buckets, norm = (
                make_ndarray(event.tensor_proto)
                for tag in (name, f"{name}/norm")
                for event in events.Tensors(tag)
                if event.step == step
            )
            assert buckets[:, 2].sum() == array.size
            assert norm == pytest.approx(np.linalg.norm(array))


def test_wandb_has_the_telemetry_as_its_own_histograms(records, measured):
    rows = [item["item"] for item in records["history"] if "telemetry/step" in item["item"]]
    assert [row["telemetry/step"] for row in rows] == list(measured)
    for row, measurement in zip(rows, measured.values(), strict=True):
        for name, array in arrays_of(measurement).items():
            kind, values, bins = (
                row[f"telemetry/{name}.{part}"] for part in ("_type", "values", "bins")
            )
            assert kind == "histogram"
            assert sum(values) == array.size
            assert len(bins) == len(values) + 1
    axes = {metric.get("glob_name"): metric.get("step_metric") for metric in records["metric"]}
    assert axes["telemetry/*"] == "telemetry/step"
