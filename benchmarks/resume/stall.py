"""What a save costs a training of WRN-16-4: the stall, and the whole cost of a save a minute."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .candidates import Candidate
from .forked import result_of

_BATCH = 8
# A block is longer than any of the background writers takes.
_STEPS_OF_A_BLOCK = 8


def measure(candidates: Sequence[Candidate], folder: Path, *, rounds: int) -> dict[str, Any]:
    """Let the candidates save in turn, in one training.

    Args:
        candidates: Save.
        folder: An empty folder.
        rounds: Saves of each.

    Returns:
        By title: "stalls", seconds of wall time and of the thread's processor time; "delays",
        seconds by which a block of steps with a save is longer than one without.
    """
    return dict(result_of(lambda _: _fit(candidates, folder, rounds)))


def _fit(candidates: Sequence[Candidate], folder: Path, rounds: int) -> dict[str, Any]:
    import keras
    from kdist.models import WideResNet

    keras.utils.set_random_seed(0)
    model = WideResNet(depth=16, width=4, input_shape=(28, 28, 1), classes=10)
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9, use_ema=True), "sparse_categorical_crossentropy"
    )
    model.optimizer.build(model.trainable_variables)
    turns = _turns_class()(candidates, folder)
    own = _timed_checkpoint(folder / "kdist", every_steps=turns.steps)
    steps = (2 + rounds) * turns.steps  # kdist does not save twice at an epoch's end
    images = np.random.default_rng(0).random((_BATCH * steps, 28, 28, 1), dtype="float32")
    labels = np.arange(len(images)) % 10
    options: dict[str, Any] = {"batch_size": _BATCH, "epochs": 1, "verbose": 0}
    model.fit(images, labels, shuffle=False, callbacks=[turns, own], **options)
    return _results(turns.blocks, turns.stalls | {"kdist": own.stalls[:-1]})


def _results(blocks: Mapping[str, list[float]], stalls: Mapping[str, list[Any]]) -> dict[str, Any]:
    results = {}
    for title, seconds in stalls.items():
        # The first block and save of each make what the others use again.
        delays = [a - b for a, b in zip(blocks[title][1:], blocks[""][1:], strict=False)]
        results[title] = {
            "stalls": seconds[1:],
            "delays": delays,
        }
    return results


def _turns_class() -> type:
    import keras

    class Turns(keras.callbacks.Callback):
        """Times blocks of steps: one without a save, and one that begins with one of each."""

        def __init__(self, candidates: Sequence[Candidate], folder: Path) -> None:
            super().__init__()
            self.candidates, self.folder = candidates, folder
            self.titles = ["", *(one.title for one in candidates)]
            self.steps = len(self.titles) * _STEPS_OF_A_BLOCK
            self.blocks: dict[str, list[float]] = {title: [] for title in self.titles}
            self.stalls: dict[str, list[Any]] = {t: [] for t in self.titles[1:] if t != "kdist"}
            self.saves: dict[str, Any] = {}
            self.began = 0.0

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            """It is never resumed."""

        def on_train_begin(self, logs: Any = None) -> None:
            for one in self.candidates:
                if one.title != "kdist":
                    self.saves[one.title] = one.saves(self.folder / one.title, self.model)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # kdist saves after the last step of a cycle, behind this callback.
            block, step = divmod((batch + 1) % self.steps, _STEPS_OF_A_BLOCK)
            if step:
                return
            order = ["kdist", *(title for title in self.titles if title != "kdist")]
            if batch + 1 > self.steps or block:
                previous = order[block - 1]
                self.blocks[previous].append(time.perf_counter() - self.began)
                if previous in self.saves:
                    self.saves[previous][1]()  # whoever is slower does not disturb the next
            self.began = time.perf_counter()
            title = order[block]
            if title in self.saves:
                self.stalls[title].append(_timed(self.saves[title][0]))

    return Turns


def _timed_checkpoint(folder: Path, *, every_steps: int) -> Any:
    from kdist.callbacks import Checkpoint

    class Timed(Checkpoint):
        """Notes how long each save stops the training."""

        def __init__(self) -> None:
            super().__init__(folder, every_seconds=None, every_steps=every_steps, verbose=0)
            self.stalls: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seconds = _timed(lambda: super(Timed, self).on_train_batch_end(batch, logs))
            if (batch + 1) % every_steps == 0:
                self.stalls.append(seconds)

    return Timed()


def _timed(function: Callable[[], None]) -> tuple[float, float]:
    """Seconds of a call: by the clock, and of this thread's work, which other programs spare."""
    began = time.perf_counter(), time.thread_time()
    function()
    return time.perf_counter() - began[0], time.thread_time() - began[1]
