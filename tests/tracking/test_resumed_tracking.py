"""A run that is killed and resumed is one run for W&B and TensorBoard, with nothing twice."""

import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import wandb
from kdist.callbacks import Checkpoint, PrintThroughput
from kdist.tracking import tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EPOCHS, STEPS = 4, 5
X, Y = np.ones((20, 4), "float32"), np.arange(20) % 2


class KilledError(Exception):
    """The process is gone."""


# Files that are renamed in the meantime, and those of W&B, which its own process writes.
NOT_COPIED = shutil.ignore_patterns(".part-*", "*offline-run-*", "latest-run")


class Kill(keras.callbacks.Callback):
    """Ends the fit in a step, and keeps what is on the disk by then."""

    def __init__(self, at, folder, kept):
        super().__init__()
        self.at, self.folder, self.kept = at, folder, kept

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            shutil.copytree(self.folder, self.kept, ignore=NOT_COPIED)
            raise KilledError

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


def fit(folder, *more):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
    model.compile(
        keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    trackers = tracking(
        "wandb",
        "tensorboard",
        folder=folder,
        config={"width": 3},
        run_name="run",
        every_batches=2,
        verbose=0,
    )
    checkpoint = Checkpoint(folder / "checkpoints", every_steps=3, keep=100, verbose=0)
    callbacks = [PrintThroughput(verbose=0), *trackers, *more, checkpoint]
    options = {"shuffle": False, "batch_size": 4, "epochs": EPOCHS, "verbose": 0}
    try:
        model.fit(X, Y, validation_data=(X, Y), callbacks=callbacks, **options)
    finally:
        if wandb.run is not None:
            wandb.finish(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Killed two steps behind a checkpoint, and behind an epoch that no checkpoint has."""
    first, second, third = (tmp_path_factory.mktemp("runs") / "run" for _ in range(3))
    for here, then, step in ((first, second, (1, 4)), (second, third, (3, 1))):
        with pytest.raises(KilledError):
            fit(here, Kill(step, here, then))
    for newest in (third / "checkpoints").glob("e00000[23]*"):
        newest.unlink()
    fit(third)
    # W&B's own process lives on, and may write what it was sent after a run has ended.
    wandb.teardown()
    for number, here in enumerate((first, second)):  # in order: folders are named by seconds
        (path,) = (here / "wandb").glob("offline-run-*")
        shutil.copytree(path, third / "wandb" / f"{number}-offline-run-")
    return third


@pytest.fixture(scope="module")
def records(folder):
    """Of W&B's files in order, by kind."""
    found = {}
    for path in sorted((folder / "wandb").glob("*offline-run-*"), key=lambda one: one.name):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            record = json.loads(line)
            found.setdefault(record["type"], []).append(record.get(record["type"], {}))
    return found


def test_wandb_has_one_run_and_every_row_once(records):
    assert len(records["run"]) >= 3
    assert len({run["run_id"] for run in records["run"]}) == 1
    rows = [item["item"] for item in records["history"]]
    epochs = [row["epoch/epoch"] for row in rows if "epoch/epoch" in row]
    steps = [row["batch/batch_step"] for row in rows if "batch/batch_step" in row]
    assert epochs == list(range(1, EPOCHS + 1))
    assert steps == list(range(2, EPOCHS * STEPS + 1, 2))
    numbers = [row["_step"] for row in rows]
    assert numbers == sorted(set(numbers))
    seconds = [row["epoch/seconds"] for row in rows if "epoch/seconds" in row]
    assert seconds[-1] > seconds[0]  # with those before


def test_tensorboard_has_every_value_once(folder):
    board = folder / "tensorboard"
    for run, tag, expected in (
        ("train", "epoch_loss", list(range(1, EPOCHS + 1))),
        ("validation", "epoch_loss", list(range(1, EPOCHS + 1))),
        (".", "best_val_loss", list(range(1, EPOCHS + 1))),
        ("batches", "batch_loss", list(range(2, EPOCHS * STEPS + 1, 2))),
        (".", "device", [0]),
        ("train", "keras", [0]),
    ):
        files = sorted((board / run).glob("events.out.tfevents.*"))
        assert len(files) == 3 if tag != "keras" else files
        found = []
        for file in files:
            events = EventAccumulator(str(file), size_guidance={"tensors": 0}).Reload()
            if tag in events.Tags()["tensors"]:
                found += [(event.wall_time, event.step) for event in events.Tensors(tag)]
        # By time: files of one second are named in any order.
        assert [step for _, step in sorted(found)] == expected, (run, tag)
