"""`ProfileSteps`: profile chosen training steps for TensorBoard's profile dashboard."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from .step_tracker import StepTracker


class ProfileSteps(StepTracker):
    """Profiles the executions that contain the steps from `first` to `last`.

    Keras's own callback counts executions instead, each of which may contain many steps.

    Args:
        folder: TensorBoard's folder; the profile is written to its `plugins/profile`.
        first: The first step, counted from 1 over all epochs of the fit.
        last: The last one.
    """

    def __init__(self, folder: Path, *, first: int, last: int) -> None:
        super().__init__("TensorBoard's profile")
        self.folder = folder
        self.first = first
        self.last = last
        self._profiling = self._done = False
        self._trace: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting from 0."""
        self._profiling = self._done = False
        super().on_train_begin(logs)

    def state(self) -> dict[str, Any]:
        """Return the steps so far, and whether those to profile were profiled."""
        return {**super().state(), "done": self._done}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue counting."""
        super().restore(state)
        self._done = state["done"]

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Start with the execution that contains the first step."""
        if not self._open or self._done or self._steps.now >= self.last:
            return
        with self._guarded("profile"):
            last = self._steps.after(batch + self.model.steps_per_execution - 1, self.params)
            if last >= self.first and not self._profiling:
                tf.profiler.experimental.start(str(self.folder))
                self._profiling = True
            if self._profiling:  # TensorBoard finds the steps by this name
                self._trace = tf.profiler.experimental.Trace("train", step_num=last, _r=1)
                self._trace.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Stop with the execution that contains the last step."""
        self._steps.now = self._steps.after(batch, self.params)
        with self._guarded("profile"):
            self._end_trace()
            if self._profiling and self._steps.now >= self.last:
                self._stop()

    def close(self, exit_code: int) -> None:
        """Stop a running profile; warn if nothing was profiled."""
        self._end_trace()
        if self._profiling:
            self._stop()
        elif not self._done and not exit_code:
            warnings.warn(
                f"nothing was profiled: training ended after step {self._steps.now}, before step"
                f" {self.first}",
                stacklevel=2,
            )

    def _end_trace(self) -> None:
        if self._trace is not None:
            trace, self._trace = self._trace, None
            trace.__exit__(None, None, None)

    def _stop(self) -> None:
        self._profiling, self._done = False, True
        tf.profiler.experimental.stop()
