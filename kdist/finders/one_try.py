"""One try of a batch size: the program `python -m kdist.finders.one_try`.

In a process of its own, so that running out of memory ends nothing else.
"""

import contextlib
import dataclasses
import re
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.child import answer, is_out_of_memory, orders
from ..user_model.data import NoSamplesError, UserData, first_samples
from ..user_model.functions import UserFunctions, load_functions

_WARM_UP_SAMPLES = 8
# The kernel ends this process first, should the machine run out of memory all the same.
_FIRST_TO_END = "1000"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSizeTry:
    """A batch size that was tried, and how that ended.

    Attributes:
        batch_size: Samples per replica and step.
        works: Whether all steps were trained.
        why: Why not: `"memory"` or `"data"`.
        how: For a process that ended without a word of memory, by which signal, and what it said
            last.
        peak: Bytes per replica at most; `None` if unknown.
        seconds: Of a step, the median without the first; `None` without a second one.
        replicas: How many there were.
    """

    batch_size: int
    works: bool
    why: str = ""
    how: str = ""
    peak: int | None = None
    seconds: float | None = None
    replicas: int = 1

    def __str__(self) -> str:
        if not self.works:
            how = f" ({self.how})" if self.how else ""
            return f"batch {self.batch_size}: not enough {self.why}{how}"
        text = f"batch {self.batch_size}: works"
        if self.peak is not None:
            text += f", {self.peak / 2**20:,.0f} MiB per replica"
        if self.seconds:
            rate = self.batch_size * self.replicas / self.seconds
            text += f", {rate:,.0f} samples per second"
        return text


def main() -> None:
    """Run the try that is ordered, and answer with its result."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    try:
        answer(result=dataclasses.asdict(run_try(**orders())))
    except UserError as error:
        answer(mistake=str(error))
        sys.exit(2)


def run_try(
    *,
    model: str,
    data: str,
    batch_size: int,
    replicas: int | None,
    steps: int,
    memory: int | None,
    shard_optimizer: bool = False,
) -> BatchSizeTry:
    """Train a few full batches.

    Args:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data.
        batch_size: Samples per replica and step.
        replicas: As for `kdist.MirroredStrategy`.
        steps: Steps that are trained.
        memory: Bytes that the process may have beyond what it has before the model is made, all
            replicas together; `None` for no limit. On GPUs there is none.
        shard_optimizer: As for `kdist.MirroredStrategy`.

    Raises:
        UserError: The user's functions fail, or their data cannot have this batch size.
    """
    from ..distribute.mirrored_strategy import MirroredStrategy

    functions = load_functions(model, data)
    strategy = MirroredStrategy(replicas=replicas, shard_optimizer=shard_optimizer)
    count: int = strategy.num_replicas_in_sync
    failed = BatchSizeTry(batch_size=batch_size, works=False, why="memory", replicas=count)
    batches = full_batches(functions, batch_size * count)
    if batches is None:
        return dataclasses.replace(failed, why="data")
    _warm_up(strategy)
    reset_peak()
    before = memory_now()
    # CUDA reserves far more addresses than it uses.
    limited = limit_memory(memory if strategy.devices[0].startswith("CPU") else None)
    if limited:  # from then on, a crash is one of an allocation
        answer(limited=True)
    try:
        seconds = _train(functions, strategy, batches, batch_size * count, steps)
    except Exception as error:
        if not is_out_of_memory(error, limited=limited):
            raise
        return failed
    peak = _peak_since(before, strategy.devices)
    return BatchSizeTry(
        batch_size=batch_size,
        works=True,
        peak=None if peak is None else peak // count,
        seconds=statistics.median(seconds[1:]) if seconds[1:] else None,
        replicas=count,
    )


def full_batches(functions: UserFunctions, global_batch: int) -> UserData | None:
    """Return the training data in batches that are all full; `None` if there is not one.

    Args:
        functions: Make the data.
        global_batch: Samples per step over all replicas.

    Raises:
        UserError: The data have batches of their own, of another size.
    """
    import keras
    import tensorflow as tf

    try:
        data = functions.load_data(global_batch)
    except NoSamplesError:
        if functions.takes_batch:  # as of `batch(batch_size, drop_remainder=True)`
            return None
        raise
    if data.has_arrays:
        count = (data.samples() or 0) // global_batch * global_batch
        return UserData(training=first_samples(data.training, count)) if count else None
    if not functions.takes_batch:
        if not isinstance(data.training, tf.data.Dataset):
            raise UserError(
                "the data function returns batches of its own, whose size cannot be varied: write"
                " def data(batch_size):"
            )
        batches = data.training.unbatch().batch(global_batch, drop_remainder=True)
        data = UserData(training=batches)
    if getattr(data.training, "num_batches", None) == 0:
        return None
    batch = next(iter(data.training), None)
    is_full = batch is not None and len(keras.tree.flatten(batch)[0]) >= global_batch
    return data if is_full else None


def _train(functions: Any, strategy: Any, data: Any, batch: int, steps: int) -> list[float]:
    import keras

    from .short_fit import build_model, fit_steps

    seconds: list[float] = []
    began = time.perf_counter()

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            nonlocal began
            began = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            for value in keras.tree.flatten(logs):
                float(value)  # the step is done
            seconds.append(time.perf_counter() - began)

    model = build_model(functions, strategy)
    fit_steps(model, data, global_batch=batch, steps=steps, callbacks=[Clock()])
    return seconds


def _warm_up(strategy: Any) -> None:
    """Train a tiny model, so that what TensorFlow takes for itself is not the model's."""
    import keras
    import numpy as np

    def build() -> Any:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    samples = _WARM_UP_SAMPLES * strategy.num_replicas_in_sync
    x, y = np.zeros((samples, 4), "float32"), np.zeros((samples, 1), "float32")
    strategy.build(build).fit(x, y, batch_size=samples, epochs=1, verbose=0)


def memory_now() -> dict[str, int]:
    """Return the bytes of this process, as Linux counts them: `VmRSS`, `VmHWM`, `VmData`."""
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(Vm\w+):\s+(\d+) kB$", text, re.M)}


def reset_peak() -> None:
    """Let `VmHWM` begin anew: what was needed to make the data is not the training's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_since(before: Mapping[str, int], devices: Sequence[str]) -> int | None:
    """Return the bytes that a training had at most, of all its replicas; `None` if unknown.

    Args:
        before: What `memory_now` said before it, after `reset_peak`.
        devices: Of its strategy, such as `("GPU:0",)`; of GPUs TensorFlow counts the bytes.
    """
    if devices[0].startswith("GPU"):
        import tensorflow as tf

        info = [tf.config.experimental.get_memory_info(device) for device in devices]
        return sum(int(one["peak"]) for one in info)
    now = memory_now()
    if "VmHWM" not in now or "VmRSS" not in before:
        return None
    return max(now["VmHWM"] - before["VmRSS"], 0)


def limit_memory(more: int | None) -> bool:
    """Let this process allocate so many bytes more: beyond, an allocation fails at once.

    The limit is that of the data segment (`setrlimit`, `RLIMIT_DATA`), which since Linux 4.7
    counts all private memory that can be written. TensorFlow then raises an error, long before the
    machine has to swap or to end programs.

    Args:
        more: `None` for no limit.

    Returns:
        Whether there is a limit now.
    """
    used = memory_now().get("VmData")
    if more is None or used is None:
        return False
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + more
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return True


if __name__ == "__main__":
    main()
