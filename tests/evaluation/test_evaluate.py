"""Runs of a small network, evaluated as they are saved, against NumPy and the run's own values."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.folder_lock import FolderLock
from kdist.data import Standardization, fashion_mnist
from kdist.data.dataset_choices import DATASETS
from kdist.errors import UserError
from kdist.tools.evaluate import EvaluateOptions, evaluate, evaluator
from kdist.training import model_and_data
from kdist.training.config import TrainConfig
from kdist.training.run import train

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
        patch.setattr(model_and_data, "make_model", small_model)
        patch.setattr(evaluator, "make_model", small_model)
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
    assert one.metrics["accuracy"] == pytest.approx(result.val_accuracy)
    assert one.metrics["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-5)
    assert (one.epoch, one.step, one.weights) == (2, None, "averaged")
    assert one.file == "model.keras"


def test_the_newest_checkpoint_of_a_run_that_has_not_ended(unfinished):
    newest, older = checkpoint_files(unfinished / "checkpoints")[:2]
    for replicas, options in [(2, {}), (1, {"averaged": True})]:
        [one] = evaluated(unfinished, replicas=replicas, val_batch_size=37, **options)
        accuracy, loss, images = in_numpy(*newest.read(), **options)
        assert one.samples == images
        assert one.metrics["accuracy"] == pytest.approx(accuracy)
        assert one.metrics["loss"] == pytest.approx(loss, rel=1e-4)
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
    assert one.samples == images == IMAGES
    assert (one.metrics["accuracy"], one.metrics["loss"]) == pytest.approx(
        (accuracy, loss), rel=1e-4
    )


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
            case 3:  # the result is written last
                shutil.copy(run[0] / "model.keras", unfinished)
                shutil.copy(run[0] / "summary.json", unfinished)

    found = evaluated(unfinished, replicas=1, watch=1e300, sleep=sleep)
    assert [one.file for one in found] == [old.path.name, new.path.name, "model.keras"]
    assert waits == [1e9] * 3  # more than `time.sleep` takes would be an error
    assert found[-1].metrics["accuracy"] == pytest.approx(run[1].val_accuracy)


def test_it_does_not_wait_for_a_model_that_is_never_saved(run, unfinished):
    shutil.copy(run[0] / "summary.json", unfinished)
    waits = []
    found = evaluated(unfinished, replicas=1, watch=0.5, sleep=waits.append)
    assert waits == []
    assert [one.weights for one in found] == ["trained"] * 3


def test_watching_ends_with_the_process_of_a_run_that_was_killed(unfinished):
    held, waits = FolderLock(unfinished / "checkpoints"), []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            held.release()

    assert len(evaluated(unfinished, replicas=1, watch=20, sleep=sleep)) == 3
    assert waits == [20] * 4  # a second look: a run that saves its model holds no lock, either


def test_watching_waits_for_a_model_that_is_saved_after_the_lock_is_released(run, unfinished):
    held = FolderLock(unfinished / "checkpoints")
    steps = iter(
        [
            held.release,
            lambda: [
                shutil.copy(run[0] / name, unfinished) for name in ("model.keras", "summary.json")
            ],
        ]
    )
    found = evaluated(unfinished, replicas=1, watch=20, sleep=lambda seconds: next(steps)())
    assert found[-1].file == "model.keras"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"watch": 0}, "watch has to be above 0 and finite, received 0"),
        ({"replicas": 0}, "replicas has to be at least 1"),
        ({"val_batch_size": 1.5}, "val_batch_size has to be an integer"),
    ],
)
def test_options_that_are_invalid(options, words):
    with pytest.raises(UserError, match=words):
        EvaluateOptions(**options)


def test_what_cannot_be_evaluated(run, tmp_path):
    def refused(path, words, **options):
        with pytest.raises(UserError, match=words):
            evaluated(path, **options)

    refused(tmp_path / "nothing", "nothing is not a folder: pass the folder that kdist train")
    refused(run[0] / "model.keras", r"for a model file, call kdist.load_model\(path, strategy")
    refused(tmp_path, "cannot evaluate .*not a run folder")
    refused(run[0], "which comes with kdist", data_dir="here")
    plain = tmp_path / "plain"
    plain.mkdir()
    settings = {**json.loads((run[0] / "config.json").read_text()), "ema_momentum": None}
    (plain / "config.json").write_text(json.dumps(settings))
    refused(plain, "has neither a checkpoint nor a model")
    refused(plain, "keeps no averages", averaged=True)
    for name in ("summary.json", "history.csv"):
        shutil.copy(run[0] / name, plain)
    (plain / "model.keras").write_bytes(b"PK\x03\x04")
    refused(plain, "do not fit the model that the run's settings make now", replicas=1)
