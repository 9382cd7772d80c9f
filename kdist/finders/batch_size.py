"""`find_batch_size`: the largest batch that fits into the memory."""

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence

from ..arguments import as_real, positive_integer, positive_number
from ..errors import TrainingError, UserError
from ..launch import child
from ..performance.resources import available_memory
from .one_try import Try, TryResult
from .short_fit import Function, function_name

INSIDE = "KDIST_FINDER"
"""Set within a try, so that a script which starts one when it is imported does not start more."""

# Of the memory that is free before a try: what Python and TensorFlow take before the model is made,
# with room for other programs.
_RUNTIME_BYTES = 2**30
_PROGRAM = (sys.executable, "-m", "kdist.finders.one_try")
_LAST_CHARACTERS = 6000
# Between the largest that works and the smallest that does not: a twentieth.
_RESOLUTION = 1.05
_LIMITS = {
    "memory": "the next larger does not fit into the memory",
    "data": "a larger global batch has more samples than the data",
    "most": "larger ones were not tried (--most)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSizeTry:
    """A batch size that was tried.

    Attributes:
        batch_size: Samples per replica and step.
        result: How it ended.
    """

    batch_size: int
    result: TryResult

    @property
    def samples_per_second(self) -> float | None:
        """Of all replicas, by the median step; `None` if unknown."""
        seconds = self.result.seconds
        return self.batch_size * self.result.replicas / seconds if seconds else None

    def __str__(self) -> str:
        if not self.result.works:
            how = f" ({self.result.how})" if self.result.how else ""
            return f"batch {self.batch_size}: not enough {self.result.why}{how}"
        text = f"batch {self.batch_size}: works"
        if self.result.peak is not None:
            text += f", {self.result.peak / 2**20:,.0f} MiB per replica"
        if self.samples_per_second is not None:
            text += f", {self.samples_per_second:,.0f} samples per second"
        return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The result of `find_batch_size`.

    Attributes:
        batch_size: What to use, per replica: the largest that works, less the margin.
        largest: The largest batch size per replica that works, to about 5 %.
        limit: What ended the search: `"memory"`, `"data"` if a global batch contains all samples,
            or `"most"`.
        tries: All tries, in order.
    """

    batch_size: int
    largest: int
    limit: str
    tries: tuple[BatchSizeTry, ...]


def find_batch_size(
    build: Function,
    data: Function = "data",
    *,
    replicas: int | None = None,
    start: int = 16,
    most: int = 65536,
    margin: float = 0.05,
    steps: int = 3,
    memory: float | None = None,
    timeout: float | None = None,
    announce: Callable[[BatchSizeTry], object] | None = None,
    run: Callable[[Try], TryResult] | None = None,
) -> BatchSize:
    """Find the largest batch size per replica that fits into memory.

    It trains a new model for a few steps with `start` samples per replica, then with twice as many,
    and so on, and bisects the interval between the largest that works and the smallest that does
    not. Each try is a separate process, because TensorFlow cannot continue after running out of
    memory, and a GPU's memory is freed only when the process ends. So the functions have to be at
    the top level of a file, and a script that calls this needs `if __name__ == "__main__":`.

    On GPUs a try may use all memory of the GPU: end other programs there, including this process if
    it has used TensorFlow. On the CPU it may use what is free when it begins, according to the
    container's limit or the machine's memory, without swap: it gets a limit (`RLIMIT_DATA`), so
    that allocating more fails at once, and the kernel's out-of-memory killer would end it before
    any other process.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`.
        data: A function that returns the data, or its name, as for `kdist.find_learning_rate`.
            Batched data are batched again, or created by `data(batch_size)`.
        replicas: As for `kdist.MirroredStrategy`.
        start: The first batch size per replica to try.
        most: The largest batch size to try.
        margin: Fraction of the largest batch to leave free, because memory also becomes fragmented,
            and validation needs some.
        steps: Steps of each try, at least 1.
        memory: Bytes that a try may use for all replicas together, besides TensorFlow's own memory;
            on the CPU, by default, what is free.
        timeout: Seconds after which a try is given up with an error.
        announce: Called with each try after it has ended.
        run: Runs a try; by default in its own process.

    Raises:
        UserError: An argument is out of range, or a function fails.
        TrainingError: Not even one sample fits, or a try fails for another reason.

    Example:
        ```python
        if __name__ == "__main__":
            found = kdist.find_batch_size("my_model.py:build", "data")
            print(found.batch_size)
        ```
    """
    first = positive_integer("start", start, hint="pass the first batch size")
    last = positive_integer("most", most, hint="pass the largest batch size")
    count = positive_integer("steps", steps, hint="pass the steps of each try")
    spare = _checked_margin(margin)
    if memory is not None:
        positive_number("memory", memory, hint="pass bytes")
    model, name = function_name(build), function_name(data)
    tries: list[BatchSizeTry] = []

    def run_try(tried: Try) -> TryResult:
        return run_in_process(tried, timeout=timeout) if run is None else run(tried)

    def works(batch: int) -> bool:
        result = run_try(
            Try(
                model=model,
                data=name,
                batch_size=batch,
                replicas=replicas,
                steps=count,
                memory=free_memory() if memory is None else int(memory),
            )
        )
        tries.append(BatchSizeTry(batch_size=batch, result=result))
        if announce is not None:
            announce(tries[-1])
        return result.works

    largest = search_largest(works, start=first, most=last)
    if largest is None:
        raise _not_one(tries[-1].result, replicas)
    failed = [one for one in tries if not one.result.works]
    limit = min(failed, key=lambda one: one.batch_size).result.why if failed else "most"
    safe = largest if limit != "memory" else max(int(largest * (1 - spare)), 1)
    return BatchSize(batch_size=safe, largest=largest, limit=limit, tries=tuple(tries))


def batch_lines(found: BatchSize) -> list[str]:
    """Say which batch size to use."""
    return [
        f"largest batch size per replica that works: {found.largest} ({_LIMITS[found.limit]})",
        f"use --batch-size {found.batch_size}",
    ]


def free_memory() -> int | None:
    """Return the bytes of memory for the model of a try on the CPU; `None` if unknown."""
    free = available_memory()
    return None if free is None else max(free - _RUNTIME_BYTES, 0)


def _not_one(result: TryResult, replicas: int | None) -> TrainingError:
    """The error if not even one sample works."""
    several = max(result.replicas, replicas or 1) > 1  # one that crashed says nothing of them
    fewer = ", or use fewer replicas" if several else ""
    if result.why == "data":
        return TrainingError(
            f"the training data have fewer samples than one per replica: return more{fewer}"
        )
    how = f" (the last try ended with {result.how})" if result.how else ""
    return TrainingError(
        f"one sample per replica is too much for the memory{how}: make the model or its inputs"
        f" smaller{fewer}"
    )


def _checked_margin(margin: object) -> float:
    part = as_real(margin)
    if part is None or not 0 <= part < 1:
        raise UserError(f"margin is {margin!r}, but has to be at least 0 and below 1: pass 0.05")
    return part


def search_largest(works: Callable[[int], bool], *, start: int, most: int) -> int | None:
    """Return the largest number, to about 5 %, for which `works` is true; `None` if there is none.

    It doubles `start` until the number does not work, or halves it until it does, and then halves
    the interval between the two. What works with a number has to work with all smaller ones.

    Args:
        works: Tries a number; it is called once for each.
        start: The first number.
        most: The largest number that is tried.

    Example:
        >>> search_largest(lambda number: number <= 100, start=16, most=1000)
        100
    """
    good, bad = 0, most + 1
    number = min(start, most)
    while good < number < bad:
        if works(number):
            good = number
            number = min(2 * number, most)
        else:
            bad = number
            number //= 2
        if good and bad <= most:
            break
    while good and bad <= most and bad - good > 1 and bad / good > _RESOLUTION:
        middle = (good + bad) // 2
        if works(middle):
            good = middle
        else:
            bad = middle
    return good or None


def run_in_process(
    tried: Try, *, timeout: float | None = None, program: Sequence[str] = _PROGRAM
) -> TryResult:
    """Run a try in a process of its own, which may run out of memory.

    Args:
        tried: What is tried.
        timeout: Seconds after which it is ended.
        program: What is run.

    Raises:
        UserError: The user's functions fail.
        TrainingError: The try failed for another reason than memory, or took too long.
    """
    if INSIDE in os.environ:
        raise UserError(
            "each try imports this file: let the call be under if __name__ == '__main__':"
        )
    try:
        ended = child.run(
            program,
            orders=dataclasses.asdict(tried),
            environment={INSIDE: "1"},
            seconds=timeout,
        )
    except TimeoutError:
        raise TrainingError(
            f"a try of batch size {tried.batch_size} has not ended after {timeout:g} seconds:"
            " pass a longer timeout"
        ) from None
    verdict = ended.verdict
    if not verdict.cause and "result" in ended.answers:
        return TryResult(**ended.answers["result"])
    if "mistake" in ended.answers:
        raise UserError(ended.answers["mistake"])
    if verdict.cause == "memory":
        said = verdict.error.strip().splitlines()[-1:]
        how = "" if verdict.is_said else ": ".join([verdict.how, *said])
        return TryResult(works=False, why="memory", how=how)
    error = verdict.error[-_LAST_CHARACTERS:]
    raise TrainingError(f"a try of batch size {tried.batch_size} ended with {verdict.how}: {error}")
