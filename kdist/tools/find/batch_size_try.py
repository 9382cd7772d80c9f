"""A single try of a batch size: the program `python -m kdist.tools.find.batch_size_try`."""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...errors import UserError
from ...processes.child import read_arguments, send_answer
from ...processes.process_exit import is_out_of_memory
from ...strategies.mirrored_strategy import MirroredStrategy
from ...training.user_model.user_data import NoSamplesError, UserData, take_first_samples
from ...training.user_model.user_functions import UserFunctions, load_functions
from .batch_size import BatchSizeTry
from .short_fit import train_model

_TRAINED_STEPS = 3
# If the machine or the container runs out of memory, the kernel ends this process first.
_FIRST_TO_END_SCORE = "1000"


def main() -> None:
    """Run the try that the parent process requested, and send its result."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END_SCORE, encoding="ascii")
    try:
        send_answer(result=dataclasses.asdict(try_batch_size(**read_arguments())))
    except UserError as error:
        send_answer(mistake=str(error))
        sys.exit(2)


def try_batch_size(
    *,
    model: str,
    data: str,
    batch_size: int,
    replicas: int | None,
    shard_optimizer: bool,
    shard_weights: bool,
) -> BatchSizeTry:
    """Train a few full batches; see `find_batch_size`."""
    functions = load_functions(model, data)
    strategy = MirroredStrategy(
        replicas=replicas, shard_optimizer=shard_optimizer, shard_weights=shard_weights
    )
    global_batch = batch_size * strategy.num_replicas_in_sync
    batches = make_full_batches(functions, global_batch)
    if batches is None:
        return BatchSizeTry(batch_size=batch_size, works=False, missing_resource="data")
    steps = _TimedSteps()
    try:
        train_model(
            functions,
            strategy,
            batches,
            global_batch=global_batch,
            epochs=_TRAINED_STEPS,
            callback=steps,
        )
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return BatchSizeTry(batch_size=batch_size, works=False, missing_resource="memory")
    seconds = (steps.ends[-1] - steps.ends[0]) / (_TRAINED_STEPS - 1)
    return BatchSizeTry(
        batch_size=batch_size, works=True, samples_per_second=global_batch / seconds
    )


class _TimedSteps(keras.callbacks.Callback):
    """Ends the training after `_TRAINED_STEPS` steps; `ends` has the time of each step's end."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        keras.tree.map_structure(float, logs)  # waits for the step
        self.ends.append(time.perf_counter())
        self.model.stop_training = len(self.ends) == _TRAINED_STEPS


def make_full_batches(functions: UserFunctions, global_batch: int) -> UserData | None:
    """Return the training data in full batches only; `None` without a full batch."""
    try:
        data = functions.load_data(global_batch)
    except NoSamplesError:
        if functions.takes_batch:  # e.g. with `batch(batch_size, drop_remainder=True)`
            return None
        raise
    if data.has_arrays:
        count = (data.known_samples() or 0) // global_batch * global_batch
        return UserData(training=take_first_samples(data.training, count)) if count else None
    if not functions.takes_batch:
        if not isinstance(data.training, tf.data.Dataset):
            raise UserError(
                "the data function returns batches of a fixed size, and a search varies the size:"
                " write def data(batch_size):"
            )
        data = UserData(training=data.training.unbatch().batch(global_batch, drop_remainder=True))
    if getattr(data.training, "num_batches", None) == 0:
        return None
    first = next(iter(data.training), None)
    is_full = first is not None and len(keras.tree.flatten(first)[0]) >= global_batch
    return data if is_full else None


if __name__ == "__main__":
    main()
