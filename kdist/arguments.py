"""Checks of single arguments: all modules reject the same value with the same message."""

import json
import math
import operator
import os
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any, SupportsIndex

from .errors import UserError


def as_integer(value: object) -> int | None:
    """Return an integer, also of NumPy, as an `int`; `None` for any other value (`True`, `2.0`)."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several numbers, or of fractions
        return None


def as_real(value: object) -> float | None:
    """Return a number, also of NumPy, as a `float`; `None` for any other value (`True`, `"1"`)."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a literal of this size, such as `1e400`, is also infinite
        return -math.inf if value < 0 else math.inf


def path_text(name: str, value: object) -> str:
    """Return the path of a file or folder as text.

    Examples:
        >>> path_text("run_dir", Path("runs/1"))
        'runs/1'
    """
    if not isinstance(value, str | os.PathLike):
        raise UserError(f"{name} has to be a path, received {value!r}")
    text = os.fsdecode(value)
    if not text:
        raise UserError(f"{name} is an empty path: leave it out to use the default")
    # A name in an encoding other than UTF-8 reaches Python with lone surrogates.
    if "\0" in text or text != text.encode("utf-8", "replace").decode("utf-8"):
        raise UserError(f"{name} has to be a path in UTF-8 without null bytes, received {text!r}")
    return text


def local_path(name: str, value: object) -> str:
    """Return the path of a file or folder of this machine as text; see `path_text`.

    Examples:
        >>> local_path("run_dir", "runs/1")
        'runs/1'
    """
    text = path_text(name, value)
    if is_remote(text):
        raise UserError(
            f"{name} is {text}, an address of remote storage, but has to be a path on this machine:"
            " mount the storage, for example with gcsfuse or s3fs, and pass the path of the mount"
        )
    return text


def is_remote(path: str | None) -> bool:
    """Whether a path is the address of a remote storage.

    Examples:
        >>> is_remote("s3://bucket/run"), is_remote("runs/1")
        (True, False)
    """
    # `Path` turns `s3://` into `s3:/`.
    return re.match(r"[a-z][a-z0-9+.-]+:/", path or "", re.IGNORECASE) is not None


def positive_integer(name: str, value: object, *, hint: str) -> int:
    """Return `value` as an `int` if it is an integer of at least 1.

    Examples:
        >>> positive_integer("replicas", 4, hint="pass strategy.num_replicas_in_sync")
        4
    """
    number = as_integer(value)
    if number is not None and number >= 1:
        return number
    raise UserError(f"{name} is {value!r}, but has to be an integer of at least 1: {hint}")


def number_within(
    name: str,
    value: object,
    *,
    above: float | None = None,
    below: float = math.inf,
    is_finite: bool = True,
    hint: str = "",
) -> float:
    """Return `value` as a `float` if it is within the bounds.

    Without `above`, the value has to be at least 0. `above` and `below` themselves are out of
    bounds. Infinity is rejected, unless `is_finite` is false.

    Examples:
        >>> number_within("momentum", 0.9, below=1)
        0.9
    """
    number = as_real(value)
    if number is not None:
        is_above = number >= 0 if above is None else number > above
        if is_above and (number < below or (number == below == math.inf and not is_finite)):
            return number
    bounds = "of at least 0" if above is None else f"above {above:g}"
    if below < math.inf:
        bounds += f" and below {below:g}"
    elif is_finite:
        bounds += " and finite"
    advice = f": {hint}" if hint else ""
    raise UserError(f"{name} is {value!r}, but has to be a number {bounds}{advice}")


def check_backend(name: str) -> None:
    """Reject all Keras backends except TensorFlow."""
    if name != "tensorflow":
        raise UserError(
            f"Keras's backend is {name}, but kdist trains with TensorFlow: set the environment"
            " variable KERAS_BACKEND to tensorflow (it overrides backend in ~/.keras/keras.json)"
        )


TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["host1:12345", "host2:12345"]},'
    ' "task": {"type": "worker", "index": 0}}'
)


def read_tf_config(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the cluster and the task in `TF_CONFIG`; both are empty for a single worker."""
    try:
        config: Any = json.loads(text.strip() or "{}")
    except ValueError as error:
        raise UserError(
            f"TF_CONFIG is not JSON ({error}): expected text such as {TF_CONFIG_EXAMPLE}"
        ) from None
    is_object = isinstance(config, Mapping)
    cluster, task = (config.get(name) or {} if is_object else None for name in ("cluster", "task"))
    if (
        not isinstance(cluster, Mapping)
        or not isinstance(task, Mapping)
        or not all(isinstance(tasks, list | Mapping) for tasks in cluster.values())
    ):
        raise UserError(f"TF_CONFIG is {text!r}: expected text such as {TF_CONFIG_EXAMPLE}")
    return cluster, task
