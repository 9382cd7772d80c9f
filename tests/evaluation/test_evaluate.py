"""Runs of a small network, evaluated as they are saved, against NumPy and the run's own values."""

import dataclasses
import json
import shutil
import sys

import kdist.layers
import keras
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.store import FolderLock
from kdist.data import Standardization, fashion_mnist
from kdist.data.datasets import DATASETS
from kdist.errors import UserError
from kdist.evaluation import EvaluateOptions, evaluate, evaluators
from kdist.layers import LocalResponseNormalization
from kdist.training import model as training_model
from kdist.training.config import TrainConfig
from kdist.training.train_run import train

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

IMAGES = 96
SETTINGS = {
    "dataset": "sample",
    "batch_size": 32,
    "replicas": 1,
    "epochs": 2,
    "base_lr": 0.05,
    "wd": 0.01,
    "ema_momentum": 0.5,
    "checkpoint_every": 1e-9,  # after every step
}


def small_model(config, data, strategy, plan):
    """Weights with a penalty and averages, and a batch norm."""
    layers = keras.layers
    model = strategy.build(
        lambda: keras.Sequential(
            [
                keras.Input(data.image_shape),
                layers.Flatten(),
                layers.Dense(8, kernel_regularizer=keras.regularizers.L2(config.wd)),
                layers.BatchNormalization(),
                layers.Dense(data.classes, activation="softmax"),
            ]
        )
    )
    with strategy.scope():
        optimizer = keras.optimizers.SGD(
            plan.learning_rate, use_ema=config.ema_momentum is not None, ema_momentum=0.5
        )
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_model, "make_model", small_model)
        patch.setattr(evaluators, "make_model", small_model)
        data = fashion_mnist(sample=True, announce=[].append).subset(IMAGES)
        few = dataclasses.replace(DATASETS["sample"], load=lambda *_: data)
        patch.setitem(DATASETS, "sample", few)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    config = TrainConfig(**SETTINGS, run_dir=str(folder))
    return folder, train(config, announce=[].append, verbose=0)


@pytest.fixture
def unfinished(run, tmp_path):
    """As the run was before its end."""
    folder = tmp_path / "unfinished"
    shutil.copytree(run[0], folder)
    for name in ("summary.json", "model.keras", "checkpoints/.lock"):
        (folder / name).unlink()
    return folder


def evaluated(path, **options):
    lines = []
    sleep = options.pop("sleep", None)
    found = evaluate(
        str(path), EvaluateOptions(**options), announce=lines.append, sleep=sleep or never
    )
    assert [str(one) for one in found] == lines[-len(found) :]
    assert "accuracy" in lines[-len(found) - 1] or "watch" in options
    return found


def never(seconds):
    raise AssertionError("it waits")


def in_numpy(arrays, state, *, averaged=False, trained=IMAGES):
    """Accuracy and loss of a checkpoint's weights, without Keras."""
    data = fashion_mnist(sample=True).subset(IMAGES)
    of = Standardization.of(data.train_images[:trained])
    images, labels = np.float64(of(np.float32(data.test_images))), data.test_labels
    names = [name for name in state["variables"] if name.startswith("model/")]
    values = [
        np.float64(arrays[state["averages"].get(name, name) if averaged else name])
        for name in names
    ]
    kernel, bias, gamma, beta, mean, variance, last, last_bias = values
    x = images.reshape(len(images), -1) @ kernel + bias
    x = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    logits = x @ last + last_bias
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    loss = -np.mean(np.log(shares[np.arange(len(labels)), labels]))
    loss += SETTINGS["wd"] * np.sum(kernel**2)
    return np.mean(shares.argmax(1) == labels), loss, len(labels)


def test_a_finished_run_has_its_own_values_on_any_number_of_replicas(run):
    """The averages: with them it was validated, and has ended."""
    folder, result = run
    [one] = evaluated(folder, replicas=3)
    assert one.accuracy == pytest.approx(result.val_accuracy)
    assert one.loss == pytest.approx(result.history["val_loss"][-1], rel=1e-5)
    assert (one.epoch, one.step, one.weights) == (2, None, "averaged")
    assert one.file == "model.keras"


def test_the_newest_checkpoint_of_a_run_that_has_not_ended(unfinished):
    newest, older = checkpoint_files(unfinished / "checkpoints")[:2]
    for replicas, options in [(2, {}), (1, {"averaged": True})]:
        [one] = evaluated(unfinished, replicas=replicas, val_batch_size=37, **options)
        accuracy, loss, images = in_numpy(*newest.read(), **options)
        assert one.images == images
        assert one.accuracy == pytest.approx(accuracy)
        assert one.loss == pytest.approx(loss, rel=1e-4)
        assert one.weights == ("averaged" if options.get("averaged") else "trained")
        assert (one.file, one.epoch) == (newest.path.name, 2)
    newest.path.write_bytes(newest.path.read_bytes()[:-1])
    [one] = evaluated(unfinished, replicas=1)
    assert one.file == older.path.name
    older.path.unlink()


def test_all_test_images_of_a_run_on_a_subset(unfinished):
    """Standardized as in the run, by its training images."""
    settings = json.loads((unfinished / "config.json").read_text()) | {"subset": 32}
    (unfinished / "config.json").write_text(json.dumps(settings))
    [one] = evaluated(unfinished, replicas=2)
    newest, *_ = checkpoint_files(unfinished / "checkpoints")
    accuracy, loss, images = in_numpy(*newest.read(), trained=32)
    assert one.images == images == IMAGES
    assert (one.accuracy, one.loss) == pytest.approx((accuracy, loss), rel=1e-4)


def test_a_file_by_itself_and_with_another_data_set(run, tmp_path):
    shutil.copy(run[0] / "model.keras", tmp_path / "alone.keras")
    [one] = evaluated(tmp_path / "alone.keras", dataset="sample", replicas=1)
    assert (one.epoch, one.weights, one.images) == (None, "saved", IMAGES)
    beside = run[0] / "model.keras"
    assert evaluated(beside, replicas=1) == evaluated(run[0], replicas=1)
    uncompiled = keras.models.load_model(beside, compile=False)
    uncompiled.layers[-1].activation = keras.activations.linear
    uncompiled.save(tmp_path / "logits.keras")
    [logits] = evaluated(tmp_path / "logits.keras", dataset="sample", replicas=1)
    assert (logits.accuracy, logits.loss) == pytest.approx((one.accuracy, one.loss), rel=1e-5)


def test_a_file_with_a_layer_of_kdist_that_nobody_has_imported(tmp_path, monkeypatch):
    """It takes images of any size."""
    model = keras.Sequential(
        [
            keras.Input((None, None, 1)),
            LocalResponseNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.save(tmp_path / "other.keras")
    registered = keras.saving.get_custom_objects()
    monkeypatch.delitem(registered, "kdist>LocalResponseNormalization")
    monkeypatch.delitem(sys.modules, LocalResponseNormalization.__module__)
    monkeypatch.delitem(vars(kdist.layers), "LocalResponseNormalization", raising=False)
    [one] = evaluated(tmp_path / "other.keras", dataset="sample", replicas=1)
    assert one.images == IMAGES


def test_each_new_checkpoint_is_evaluated_as_it_appears(run, unfinished):
    """Meanwhile the run saves another, and ends."""
    inner, away = unfinished / "checkpoints", unfinished / "away"
    old, new = checkpoint_files(inner)[::-1][:2]
    for one in checkpoint_files(inner):
        if one != old:
            away.mkdir(exist_ok=True)
            one.path.rename(away / one.path.name)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        match len(waits):
            case 2:
                (away / new.path.name).rename(new.path)
            case 3:  # the result is written first
                shutil.copy(run[0] / "summary.json", unfinished)
            case 4:
                shutil.copy(run[0] / "model.keras", unfinished)

    found = evaluated(unfinished, replicas=1, watch=1e300, sleep=sleep)
    assert [one.file for one in found] == [old.path.name, new.path.name, "model.keras"]
    assert waits == [1e9] * 4  # more than `time.sleep` takes would be an error
    assert found[-1].accuracy == pytest.approx(run[1].val_accuracy)


def test_it_does_not_wait_for_a_model_that_is_never_saved(run, unfinished):
    shutil.copy(run[0] / "summary.json", unfinished)
    waits = []
    found = evaluated(unfinished, replicas=1, watch=0.5, sleep=waits.append)
    assert len(waits) == 1
    assert [one.weights for one in found] == ["trained"] * 3
    settings = json.loads((unfinished / "config.json").read_text()) | {"save_model": False}
    (unfinished / "config.json").write_text(json.dumps(settings))
    assert evaluated(unfinished, replicas=1, watch=0.5) == found


def test_watching_ends_with_the_process_of_a_run_that_was_killed(unfinished):
    """After a minute in which no other process has continued it."""
    held, waits, lines = [FolderLock(unfinished / "checkpoints")], [], []

    def sleep(seconds):
        waits.append(seconds)
        match len(waits):
            case 3 | 6:
                held.pop().release()
            case 4:
                held.append(FolderLock(unfinished / "checkpoints"))

    options = EvaluateOptions(replicas=1, watch=20)
    evaluate(str(unfinished), options, announce=lines.append, sleep=sleep)
    assert waits == [20] * 8
    assert lines[-1].endswith(f"has ended: continue it with kdist train --resume {unfinished}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "mine.py:data", "dataset": "sample"}, "received --data .* and a data set"),
        ({"watch": 0}, "watch has to be above 0 and finite, received 0"),
        ({"replicas": 0}, "replicas has to be at least 1"),
        ({"dataset": "nosuch"}, "dataset has to be"),
        ({"dataset": "sample", "data_dir": "here"}, "is embedded"),
    ],
)
def test_options_that_are_invalid(options, words):
    with pytest.raises(UserError, match=words):
        EvaluateOptions(**options)


def test_what_cannot_be_evaluated(run, tmp_path):
    def refused(path, words, **options):
        with pytest.raises(UserError, match=words):
            evaluated(path, **options)

    file = run[0] / "model.keras"
    refused(tmp_path / "nothing", "nothing does not exist: pass the folder")
    refused(tmp_path, "cannot evaluate .*not a run folder")
    for path in (run[0], file):
        refused(path, "received --data mine.py:data, but .* is not a run of", data="mine.py:data")
    refused("mine.py:build", "makes a model that is not trained: pass the run")
    refused(file, "received --watch and the file", watch=3)
    refused(file, "received --averaged and the file", averaged=True)
    (tmp_path / "damaged.keras").write_bytes(b"PK\x03\x04")
    refused(tmp_path / "damaged.keras", "Keras cannot open", dataset="sample", replicas=1)
    other = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    other.save(tmp_path / "other.keras")
    refused(tmp_path / "other.keras", "images of 4 x 4 x 1 and has 3", dataset="sample")
    cropped = keras.Sequential(
        [keras.Input((24, 24, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    cropped.save(tmp_path / "cropped.keras")
    refused(tmp_path / "cropped.keras", "evaluate the run's folder, which", dataset="sample")
    plain = tmp_path / "plain"
    plain.mkdir()
    settings = {**json.loads((run[0] / "config.json").read_text()), "ema_momentum": None}
    (plain / "config.json").write_text(json.dumps(settings))
    refused(plain, "has neither a checkpoint nor a model")
    refused(plain, "keeps no averages", averaged=True)
