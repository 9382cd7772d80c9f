"""TensorBoard: scalars, histograms, the model's graph and hyperparameters."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from .tracker import Tracker

# The run and the prefix of names, for each axis. TensorBoard reads the files of a run one after the
# other, so values within epochs are written to separate runs.
_RUN_AND_PREFIX = {
    "epoch": ("train", "epoch_"),
    "best": (".", ""),
    "batch": ("batches", "batch_"),
    "telemetry": ("telemetry", ""),
}


class TensorBoardTracker(Tracker):
    """Writes `epoch_<name>` every epoch, counted from 1, the model's graph and hyperparameters.

    Training and validation are the runs `train` and `validation`, as with Keras's callback. The
    folder itself is a run with the best accuracies and losses so far (`best_val_accuracy`, …), the
    device and the versions as text, and the hyperparameters. The HParams
    dashboard shows the hyperparameters; opened on the folder of a search, it compares the trials.
    Values within epochs are the runs `batches`, with names `batch_<name>`, and `telemetry`.
    """

    title: ClassVar[str] = "TensorBoard"

    def start(self, environment: Mapping[str, Any]) -> None:
        """Write the device, the versions, the model and the hyperparameters, once for a run."""
        self._writers: dict[str, Any] = {}
        types = bool | int | float | str
        values = {
            name: value for name, value in self.hyperparameters.items() if isinstance(value, types)
        }
        self._session = (
            hparams.KerasCallback(self._get_writer("."), values, self.name) if values else None
        )
        if self.sent:
            return
        with self._get_writer(".").as_default(0):
            for name, value in {"device": environment["device"], **environment["versions"]}.items():
                tf.summary.text(name, value)
        with self._get_writer("train").as_default(0):
            _write_graph(self.model)
        if self._session is not None:
            self._session.on_train_begin()

    def log_values(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step, and flush them, as `sent.json` says that they are written."""
        run, prefix = _RUN_AND_PREFIX[axis]
        for name, value in values.items():
            is_validation = axis == "epoch" and name.startswith("val_")
            tag = prefix + (name.removeprefix("val_") if is_validation else name)
            with self._get_writer("validation" if is_validation else run).as_default(step):
                if isinstance(value, np.ndarray):
                    tf.summary.histogram(tag, value, buckets=64)
                else:
                    tf.summary.scalar(tag, value)
        for writer in self._writers.values():
            writer.flush()

    def finish_run(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Write the end of the hyperparameters' session, and close the files."""
        if self._session is not None:
            self._session.on_train_end()
        for writer in self._writers.values():
            writer.close()

    def _get_writer(self, run: str) -> Any:
        if run not in self._writers:
            self._writers[run] = tf.summary.create_file_writer(str(self.folder / run))
        return self._writers[run]


def _write_graph(model: Any) -> None:
    """Write the model's layers for TensorBoard's graph plugin, unless JSON cannot hold them."""
    try:
        layers = model.to_json()
    except Exception:  # any exception of a user's get_config
        return
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "graph_keras_model"
    metadata.plugin_data.content = b"1"
    tf.summary.write("keras", layers, metadata=metadata)
