"""One try of a batch size: the program `python -m kdist.finders.one_try`.

In a process of its own, so that running out of memory ends nothing else.
"""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.child import answer, is_out_of_memory, orders
from ..performance.resources import limit_memory, memory_now, peak_since, reset_peak

_WARM_UP_SAMPLES = 8
# The kernel ends this process first, should the machine run out of memory all the same.
_FIRST_TO_END = "1000"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """What is tried.

    Attributes:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data.
        batch_size: Samples per replica and step.
        replicas: As for `kdist.MirroredStrategy`.
        steps: Steps that are trained.
        memory: Bytes that the process may have beyond what it has before the model is made, all
            replicas together; `None` for no limit. On GPUs there is none.
    """

    model: str
    data: str
    batch_size: int
    replicas: int | None
    steps: int
    memory: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TryResult:
    """How a try ended.

    Attributes:
        works: Whether all steps were trained.
        why: Why not: `"memory"` or `"data"`.
        peak: Bytes per replica at most; `None` if unknown.
        seconds: Of a step, the median without the first; `None` without a second one.
        replicas: How many there were.
        how: For a process that ended without a word of memory, by which signal, and what it said
            last.
    """

    works: bool
    why: str = ""
    how: str = ""
    peak: int | None = None
    seconds: float | None = None
    replicas: int = 1


def main() -> None:
    """Run the try that is ordered, and answer with its result."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    try:
        answer(result=dataclasses.asdict(run_try(Try(**orders()))))
    except UserError as error:
        answer(mistake=str(error))
        sys.exit(2)


def run_try(tried: Try) -> TryResult:
    """Train a few full batches.

    Raises:
        UserError: The user's functions fail, or their data cannot have this batch size.
    """
    from ..distribute.mirrored_strategy import MirroredStrategy
    from ..user_model.functions import load_functions

    functions = load_functions(tried.model, tried.data)
    strategy = MirroredStrategy(replicas=tried.replicas)
    replicas: int = strategy.num_replicas_in_sync
    global_batch = tried.batch_size * replicas
    data = _full_batches(functions, global_batch)
    if data is None:
        return TryResult(works=False, why="data", replicas=replicas)
    _warm_up(strategy)
    reset_peak()
    before = memory_now()
    # CUDA reserves far more addresses than it uses.
    limited = limit_memory(tried.memory if strategy.devices[0].startswith("CPU") else None)
    if limited:  # from then on, a crash is one of an allocation
        answer(limited=True)
    try:
        seconds = _train(functions, strategy, data, global_batch, tried.steps)
    except Exception as error:
        if not is_out_of_memory(error, limited=limited):
            raise
        return TryResult(works=False, why="memory", replicas=replicas)
    peak = peak_since(before, strategy.devices)
    return TryResult(
        works=True,
        peak=None if peak is None else peak // replicas,
        seconds=_median(seconds[1:]),
        replicas=replicas,
    )


def _full_batches(functions: Any, global_batch: int) -> Any:
    """The training data in full batches; `None` if they have not as many samples as one."""
    from ..user_model.data import NoSamplesError
    from .short_fit import full_batches, has_full_batch

    try:
        data = functions.load_data(global_batch)
    except NoSamplesError:
        if functions.takes_batch:  # as of `batch(batch_size, drop_remainder=True)`
            return None
        raise
    if not (data.has_arrays or functions.takes_batch):
        data = full_batches(data, global_batch)
    if not has_full_batch(data, global_batch):
        return None
    return full_batches(data, global_batch) if data.has_arrays else data


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


def _median(values: list[float]) -> float | None:
    import statistics

    return statistics.median(values) if values else None


if __name__ == "__main__":
    main()
