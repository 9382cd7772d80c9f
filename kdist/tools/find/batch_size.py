"""`find_batch_size`: find the largest batch size that fits into memory."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arguments import positive_integer
from ...errors import TrainingError, UserError
from ...processes import child

TRY_VARIABLE = "KDIST_FINDER"
"""Environment variable in the process of a try, where `find_batch_size` refuses to start a search:
a user's file that calls `find_batch_size` on import would start searches without end."""

# Margin for fragmentation and for validation.
_MEMORY_MARGIN = 0.05
# The search ends when the smallest size that fails is within 5 % of the largest size that works.
_RESOLUTION = 1.05
_PROGRAM = (sys.executable, "-m", "kdist.tools.find.batch_size_try")
_LAST_CHARACTERS = 6000
_LIMIT_TEXTS = {
    "memory": "the next larger size that was tried did not fit into memory",
    "data": "the data have too few samples for a larger global batch",
    "most": "larger sizes were not tried (--most)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSizeTry:
    """A batch size that was tried, and the result.

    Attributes:
        batch_size: Samples per replica and step.
        works: Whether all steps were trained.
        missing_resource: `"memory"` or `"data"` of a failed try; empty if the try works.
        end: The signal and the last line of a process that ended without a message about memory.
        samples_per_second: Samples per second over all replicas, without the first step.
    """

    batch_size: int
    works: bool
    missing_resource: str = ""
    end: str = ""
    samples_per_second: float | None = None

    def __str__(self) -> str:
        if not self.works:
            end = f" ({self.end})" if self.end else ""
            return f"batch {self.batch_size}: not enough {self.missing_resource}{end}"
        speed = self.samples_per_second
        rate = f", {speed:,.0f} samples per second" if speed else ""
        return f"batch {self.batch_size}: works{rate}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The result of `find_batch_size`; `print` shows a recommendation.

    Attributes:
        batch_size: Recommended samples per replica: `largest`, less 5 % if memory is the limit.
        largest: Largest batch size per replica that works, within 5 %.
        limit: Reason why the search ended: `"memory"`, `"data"` if a global batch contains all
            samples, or `"most"`.
        tries: All tries, in order.
    """

    batch_size: int
    largest: int
    limit: str
    tries: tuple[BatchSizeTry, ...]

    def __str__(self) -> str:
        limit = _LIMIT_TEXTS[self.limit]
        return (
            f"largest batch size per replica that works: {self.largest} ({limit})\n"
            f"use --batch-size {self.batch_size}"
        )


def find_batch_size(
    model: str,
    data: str = "data",
    *,
    replicas: int | None = None,
    shard_optimizer: bool = False,
    shard_weights: bool = False,
    start: int = 16,
    most: int = 65536,
    announce: Callable[[BatchSizeTry], object] = lambda _: None,
) -> BatchSize:
    """Find the largest batch size per replica that fits into memory.

    A new model is trained for a few steps with `start` samples per replica, then with twice as
    many, and so on; a bisection follows, between the largest size that works and the smallest size
    that fails. Each try is a separate process: TensorFlow cannot continue after running out of
    memory, and a GPU's memory is freed only when the process ends.

    On GPUs a try may use all GPU memory: end all programs that use these GPUs, including this
    process if it has used TensorFlow. On the CPU a try may use all memory of the
    machine or of the container: when the memory runs out, the kernel ends the try first.

    Args:
        model: `"FILE.py:FUNCTION"`; the function returns a compiled model.
        data: The function that returns the data, as for `kdist.find_learning_rate`: its name in the
            same file, or `"FILE.py:FUNCTION"`. A batched `tf.data.Dataset` is batched again.
        replicas: As for `kdist.MirroredStrategy`.
        shard_optimizer: As for `kdist.MirroredStrategy`.
        shard_weights: As for `kdist.MirroredStrategy`.
        start: The first batch size per replica to try.
        most: The largest batch size to try.
        announce: Called with each try when it has ended.

    Raises:
        UserError: An argument is out of range, or a function fails.
        TrainingError: Not even a single sample per replica fits, or a try fails for a different
            reason.

    Examples:
        ```python
        found = kdist.find_batch_size("my_model.py:build", "data")
        print(found.batch_size)
        ```
    """
    first = positive_integer("start", start, hint="pass the first batch size")
    last = positive_integer("most", most, hint="pass the largest batch size")
    arguments = {
        "model": model,
        "data": data,
        "replicas": replicas,
        "shard_optimizer": shard_optimizer,
        "shard_weights": shard_weights,
    }
    tries: list[BatchSizeTry] = []

    def works(batch_size: int) -> bool:
        tries.append(run_try({**arguments, "batch_size": batch_size}))
        announce(tries[-1])
        return tries[-1].works

    largest = search_largest(works, start=first, most=last)
    if largest is None:
        raise _no_batch_size_error(tries[-1])
    failed = [attempt for attempt in tries if not attempt.works]
    smallest = min(failed, key=lambda attempt: attempt.batch_size, default=None)
    limit = "most" if smallest is None else smallest.missing_resource
    safe = max(int(largest * (1 - _MEMORY_MARGIN)), 1) if limit == "memory" else largest
    return BatchSize(batch_size=safe, largest=largest, limit=limit, tries=tuple(tries))


def _no_batch_size_error(last: BatchSizeTry) -> TrainingError:
    if last.missing_resource == "data":
        return TrainingError(
            "the training data have fewer samples than replicas: return more samples, or use fewer"
            " replicas"
        )
    end = f" (the last try ended with {last.end})" if last.end else ""
    return TrainingError(
        f"one sample per replica does not fit into memory{end}: make the model or its inputs"
        " smaller, or use fewer replicas"
    )


def search_largest(works: Callable[[int], bool], *, start: int, most: int) -> int | None:
    """Return the largest number, within 5 %, for which `works` is true; `None` without any.

    If a number works, all smaller numbers have to work. No number is tried twice.

    Examples:
        >>> search_largest(lambda number: number <= 100, start=16, most=1000)
        100
    """
    good, bad = 0, most + 1  # largest number that works, smallest number that fails
    number = min(start, most)
    while good < number < bad:
        if works(number):
            good = number
        else:
            bad = number
        if bad > most:
            number = min(2 * good, most)
        elif bad > _RESOLUTION * good:
            number = (good + bad) // 2
        else:
            break
    return good or None


def run_try(arguments: Mapping[str, Any], *, program: Sequence[str] = _PROGRAM) -> BatchSizeTry:
    """Run a try in a separate process, because it may run out of memory."""
    if TRY_VARIABLE in os.environ:
        raise UserError(
            "the model's file calls find_batch_size on import: put the call under"
            " if __name__ == '__main__':"
        )
    ended = child.run_child(program, arguments=arguments, environment={TRY_VARIABLE: "1"})
    batch_size, process_exit = arguments["batch_size"], ended.exit
    if not process_exit.cause and "result" in ended.answers:
        return BatchSizeTry(**ended.answers["result"])
    if "mistake" in ended.answers:
        raise UserError(ended.answers["mistake"])
    if process_exit.cause == "memory":
        last_line = process_exit.error.strip().splitlines()[-1:]
        end = "" if process_exit.is_reported else ": ".join([process_exit.ending, *last_line])
        return BatchSizeTry(batch_size=batch_size, works=False, missing_resource="memory", end=end)
    error = process_exit.error[-_LAST_CHARACTERS:]
    raise TrainingError(
        f"a try of batch size {batch_size} ended with {process_exit.ending}: {error}"
    )
