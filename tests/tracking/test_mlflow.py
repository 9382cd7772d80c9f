"""MLflow: one run in its store of files, read by MLflow's own client."""

import keras
import numpy as np
import pytest
from kdist.callbacks import Checkpoint, TrainingTelemetry
from kdist.tracking import tracking

mlflow = pytest.importorskip("mlflow", reason="needs pip install 'kdist[mlflow]'")


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return mlflow.MlflowClient()


class Stop(keras.callbacks.Callback):
    """Ends the fit in the second step of the third epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 1):
            raise KeyboardInterrupt

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


def fit(folder, *more):
    keras.utils.set_random_seed(0)
    x, y = np.ones((20, 4), "float32"), np.arange(20) % 2
    layer = keras.layers.Dense(2, activation="softmax", name="last")
    model = keras.Sequential([keras.Input((4,)), layer])
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    telemetry = TrainingTelemetry(every_steps=10, verbose=0)
    trackers = tracking(
        "mlflow",
        folder=folder,
        config={"width": 3, "data_dir": "/home/me"},
        group="a search",
        run_name="trial 7",
        every_batches=2,
        hyperparameters={"base_lr": 0.05},
        telemetry=telemetry,
        verbose=0,
    )
    checkpoint = Checkpoint(folder / "checkpoints", every_steps=4, verbose=0)
    return model.fit(
        x,
        y,
        validation_data=(x, y),
        callbacks=[telemetry, *trackers, *more, checkpoint],
        shuffle=False,
        batch_size=4,
        epochs=4,
        verbose=0,
    ).history


def test_mlflow_has_every_value_once_also_of_a_run_that_is_resumed(client, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", Stop())
    history = fit(tmp_path / "run")
    experiment = client.get_experiment_by_name("kdist")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "trial 7")
    assert run.data.params == {"replicas": "1", "width": "3", "base_lr": "0.05"}
    assert run.data.tags["group"] == "a search"
    assert run.data.tags["keras"] == keras.__version__

    def values(name):
        metrics = client.get_metric_history(run.info.run_id, name)
        return [metric.step for metric in metrics], [metric.value for metric in metrics]

    for name, column in history.items():
        steps, found = values(name)
        assert steps == [1, 2, 3, 4]
        assert found[-len(column) :] == pytest.approx(column)
    assert values("batch/loss")[0] == list(range(2, 21, 2))
    assert values("telemetry/weights/last/kernel/norm")[0] == [1, 10, 20]
    assert values("seconds")[0] == values("learning_rate")[0] == [1, 2, 3, 4]
    assert values("best_val_accuracy")[1][-1] == max(values("val_accuracy")[1])
