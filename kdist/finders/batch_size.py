"""`find_batch_size`: the largest batch that fits into the memory."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..arguments import as_real, positive_integer, positive_number
from ..errors import TrainingError, UserError
from ..launch import child
from ..performance.resources import available_memory
from .one_try import BatchSizeTry
from .short_fit import Function, file_of

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
    shard_optimizer: bool = False,
    start: int = 16,
    most: int = 65536,
    margin: float = 0.05,
    steps: int = 3,
    memory: float | None = None,
    announce: Callable[[BatchSizeTry], object] = lambda _: None,
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
        shard_optimizer: The same.
        start: The first batch size per replica to try.
        most: The largest batch size to try.
        margin: Fraction of the largest batch to leave free, because memory also becomes fragmented,
            and validation needs some.
        steps: Steps of each try, at least 1.
        memory: Bytes that a try may use for all replicas together, besides TensorFlow's own memory;
            on the CPU, by default, what is free.
        announce: Called with each try after it has ended.

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
    spare = as_real(margin)
    if spare is None or not 0 <= spare < 1:
        raise UserError(f"margin is {margin!r}, but has to be at least 0 and below 1: pass 0.05")
    if memory is not None:
        positive_number("memory", memory, hint="pass bytes")
    model, data_function = function_name(build), function_name(data)
    tries: list[BatchSizeTry] = []

    def works(batch: int) -> bool:
        orders = {
            "model": model,
            "data": data_function,
            "batch_size": batch,
            "replicas": replicas,
            "shard_optimizer": shard_optimizer,
            "steps": count,
            "memory": free_memory() if memory is None else int(memory),
        }
        tries.append(run_in_process(orders))
        announce(tries[-1])
        return tries[-1].works

    largest = search_largest(works, start=first, most=last)
    if largest is None:
        raise _not_one(tries[-1], replicas)
    failed = [one for one in tries if not one.works]
    limit = min(failed, key=lambda one: one.batch_size).why if failed else "most"
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


def _not_one(result: BatchSizeTry, replicas: int | None) -> TrainingError:
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


def function_name(function: Function) -> str:
    """Return the `"FILE.py:FUNCTION"` by which another process finds a function.

    Raises:
        UserError: It is not at the top level of a file.
    """
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__name__)
    path = file_of(function)
    if not name.isidentifier() or not path.endswith(".py") or not os.path.isfile(path):
        raise UserError(
            f"each try runs in a process of its own, which cannot find {name}: put the function at"
            " the top level of a file, and pass it or 'FILE.py:FUNCTION'"
        )
    return f"{path}:{name}"


def run_in_process(orders: Mapping[str, Any], *, program: Sequence[str] = _PROGRAM) -> BatchSizeTry:
    """Run a try in a process of its own, which may run out of memory.

    Args:
        orders: The arguments of `run_try`.
        program: What is run.

    Raises:
        UserError: The user's functions fail.
        TrainingError: The try failed for another reason than memory.
    """
    if INSIDE in os.environ:
        raise UserError(
            "each try imports this file: let the call be under if __name__ == '__main__':"
        )
    ended = child.run(program, orders=orders, environment={INSIDE: "1"})
    batch: int = orders["batch_size"]
    verdict = ended.verdict
    if not verdict.cause and "result" in ended.answers:
        return BatchSizeTry(**ended.answers["result"])
    if "mistake" in ended.answers:
        raise UserError(ended.answers["mistake"])
    if verdict.cause == "memory":
        said = verdict.error.strip().splitlines()[-1:]
        how = "" if verdict.is_said else ": ".join([verdict.how, *said])
        return BatchSizeTry(batch_size=batch, works=False, why="memory", how=how)
    error = verdict.error[-_LAST_CHARACTERS:]
    raise TrainingError(f"a try of batch size {batch} ended with {verdict.how}: {error}")
