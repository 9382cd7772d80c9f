"""One try of a batch size: the program `python -m kdist.finders.trial`.

In a process of its own, so that running out of memory ends nothing else.
"""

import contextlib
import dataclasses
import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

_WARM_UP_SAMPLES = 8
# The kernel ends this process first, should the machine run out of memory all the same.
_FIRST_TO_END = "1000"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
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
class TrialResult:
    """How a try ended.

    Attributes:
        works: Whether all steps were trained.
        why: Why not: `"memory"` or `"data"`.
        peak: Bytes per replica at most; `None` if unknown.
        seconds: Of a step, the median without the first; `None` without a second one.
        replicas: How many there were.
    """

    works: bool
    why: str = ""
    peak: int | None = None
    seconds: float | None = None
    replicas: int = 1


def main() -> None:
    """Run the try that the argument describes, and print the result as a line of JSON."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    from ..errors import UserError

    trial = Trial(**json.loads(sys.argv[1]))
    answer: dict[str, Any]
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = dataclasses.asdict(run_trial(trial))
        except UserError as error:
            answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)


def run_trial(trial: Trial) -> TrialResult:
    """Train a few full batches.

    Raises:
        UserError: The user's functions fail, or their data cannot have this batch size.
    """
    from ..distribute.mirrored_strategy import MirroredStrategy
    from ..performance.out_of_memory import is_out_of_memory
    from ..user_model.functions import load_functions
    from .short_fit import full_batches, has_full_batch

    functions = load_functions(trial.model, trial.data)
    strategy = MirroredStrategy(replicas=trial.replicas)
    replicas: int = strategy.num_replicas_in_sync
    global_batch = trial.batch_size * replicas
    data = functions.load_data(global_batch)
    if not (data.has_arrays or functions.takes_batch):
        data = full_batches(data, global_batch)
    if not has_full_batch(data, global_batch):
        return TrialResult(works=False, why="data", replicas=replicas)
    if data.has_arrays:
        data = full_batches(data, global_batch)
    _warm_up(strategy)
    before = memory_now()
    try:
        # CUDA reserves far more addresses than it uses.
        limit_memory(trial.memory if strategy.devices[0].startswith("CPU") else None)
        seconds = _train(functions, strategy, data, global_batch, trial.steps)
    except Exception as error:
        if not (is_out_of_memory(error) or is_out_of_memory_below(error)):
            raise
        return TrialResult(works=False, why="memory", replicas=replicas)
    peak = _peak(strategy, before)
    return TrialResult(
        works=True,
        peak=None if peak is None else peak // replicas,
        seconds=_median(seconds[1:]),
        replicas=replicas,
    )


def is_out_of_memory_below(error: BaseException) -> bool:
    """Whether an error was raised because of another that says that memory ran out."""
    from ..performance.out_of_memory import is_out_of_memory

    cause = error.__cause__ or error.__context__
    return cause is not None and (is_out_of_memory(cause) or is_out_of_memory_below(cause))


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
            float(logs["loss"])  # the step is done
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


def limit_memory(more: int | None) -> None:
    """Let this process allocate so many bytes more: beyond, an allocation fails at once.

    The limit is that of the data segment (`setrlimit`, `RLIMIT_DATA`), which since Linux 4.7
    counts all private memory that can be written. TensorFlow then raises an error, long before the
    machine has to swap or to end programs.

    Args:
        more: `None` for no limit.
    """
    used = memory_now().get("VmData")
    if more is None or used is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + more
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def _peak(strategy: Any, before: dict[str, int]) -> int | None:
    """Bytes at most, of all replicas: on GPUs as TensorFlow counts them."""
    import tensorflow as tf

    devices = strategy.devices
    if devices[0].startswith("GPU"):
        info = [tf.config.experimental.get_memory_info(device) for device in devices]
        return sum(int(one["peak"]) for one in info)
    now = memory_now()
    if "VmHWM" not in now or "VmRSS" not in before:
        return None
    return max(now["VmHWM"] - before["VmRSS"], 0)


def _median(values: list[float]) -> float | None:
    import statistics

    return statistics.median(values) if values else None


if __name__ == "__main__":
    main()
