"""Error messages of steps that fail while they run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.atomic_function import InterpolateRuntimeError
from tensorflow.python.framework import error_interpolation

from .hooks import equalize_copies
from .patching import TENSORFLOW, replaces

_KDIST_FOLDERS = "|".join(
    re.escape(str(Path(__file__).parents[1] / folder).removeprefix("/"))
    for folder in ("_upstream", "strategies", "workers", "spmd")
)
# Lines of kdist's own files, not of the user's program. XLA prints paths without the first slash.
_KDIST_FRAME = re.compile(rf'^ *File "/?(?:{_KDIST_FOLDERS})/.*\n\n?', re.MULTILINE)
# Matches the summary up to its footer, or up to ` [Op:name]` if TensorFlow cut the footer off.
_SUMMARY = re.compile(
    r"\d+ root error\(s\) found\.\n(.*?)"
    r"(?:\n0 successful operations\.\n\d+ derived errors ignored\.|(?=(?: \[Op:\S+\])?\Z))",
    re.DOTALL,
)
_ROOT_ERROR_PREFIX = re.compile(r"^  \(\d+\) \w+: +", re.MULTILINE)
# Text from a device that waited: its operation, or its whole message.
_WAITING = re.compile(r"\n\t \[\[[^{\n]*\]\]|.*Function was cancelled before it was started")
_CANCELLED_TEXT = "RecvAsync is cancelled."
_LOST_CAUSE_NOTE = (
    " The error of another device is lost: run on one device (if you pass shards=, with the same"
    " number) to see the error."
)
# The suffix of TensorFlow's copy of a function for the devices of its arguments. The operations of
# the copy have the names of the original function.
_COPY_SUFFIX = re.compile(r"_specialized_for_.*$")
# An operation of a branch that TensorFlow inlined; the group is the name of the condition.
_INLINED = re.compile(r"^.+_tfg_inlined_(.+)_\d+$")


@replaces(
    error_interpolation,
    "parse_message",
    why="Repeats a failed operation for each device that waited for it, and does not find the"
    " line of an operation in a function that is copied for its arguments.",
    test="test_an_error_names_its_operation_for_each_device",
    seen_in=TENSORFLOW,
)
def _parse_message(
    original: Callable[[str], tuple[str, list[Any], list[Any]]], message: str
) -> tuple[str, list[Any], list[Any]]:
    """Return the text, functions and operations of a message, each cause and operation once."""
    text, functions, operations = original(_SUMMARY.sub(_only_cause, message))
    functions = [tag._replace(name=_COPY_SUFFIX.sub("", tag.name)) for tag in functions]
    operations = [tag._replace(name=_INLINED.sub(r"\1", tag.name)) for tag in operations]
    return text, functions, list(dict.fromkeys(operations))


def _only_cause(summary: re.Match[str]) -> str:
    """Return the cause that all devices report; the whole summary if there are several causes."""
    causes = [_WAITING.sub("", cause).strip() for cause in _ROOT_ERROR_PREFIX.split(summary[1])[1:]]
    longest = max(causes, key=len, default="")
    # A text that begins like the longest cause is the same cause, cut.
    return longest if longest and all(map(longest.startswith, causes)) else summary[0]


@replaces(
    InterpolateRuntimeError,
    "interpolate",
    why="Shows kdist's lines between the lines of `fit` and the lines of the step.",
    test="test_an_error_shows_all_lines_outside_tensorflow",
    seen_in=TENSORFLOW,
)
def _interpolate(original: Callable[..., str], *args: Any) -> str:
    """Return an error message without kdist's lines; if its cause is lost, add a remedy."""
    return _KDIST_FRAME.sub("", original(*args)).replace(
        _CANCELLED_TEXT, _CANCELLED_TEXT + _LOST_CAUSE_NOTE
    )


@replaces(
    InterpolateRuntimeError,
    "__exit__",
    why="Keeps changes of variables on devices that did not fail: copies of a variable differ.",
    test="test_a_failed_step_leaves_unequal_copies",
    seen_in=TENSORFLOW,
)
def _equalize_copies_after_error(
    original: Callable[..., bool], self: Any, kind: Any, error: Any, trace: Any
) -> bool:
    """Make the copies of a function's variables equal after the function failed while it ran.

    Further variables stay as they are: another thread may be in a step that changes them.
    """
    if isinstance(error, tf.errors.OpError) and tf.executing_eagerly():
        equalize_copies(self._func.graph.external_captures)
    return original(self, kind, error, trace)


PATCHES = (
    _parse_message,
    _interpolate,
    _equalize_copies_after_error,
)
