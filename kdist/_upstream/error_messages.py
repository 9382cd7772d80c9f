"""Error messages of steps that fail while they run."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensorflow.python.eager.polymorphic_function.atomic_function import InterpolateRuntimeError

from .patching import TENSORFLOW, Patch

_OWN = "|".join(
    re.escape(str(Path(__file__).parents[1] / folder).removeprefix("/"))
    for folder in ("_upstream", "distribute", "spmd")
)
# Lines that say nothing of the user's program; XLA prints paths without their first slash.
_OWN_FRAME = re.compile(rf'^ *File "/?(?:{_OWN})/.*\n\n?', re.MULTILINE)
_SUMMARY = re.compile(
    r"\d+ root error\(s\) found\.\n(.*)\n0 successful operations\.\n\d+ derived errors ignored\.",
    re.DOTALL,
)
_CAUSE = re.compile(r"^  \(\d+\) \w+: +", re.MULTILINE)
_WAITING = re.compile(r"\n\t \[\[[^{\n]*\]\]")  # an operation of a device that waited


def _interpolate(
    original: Callable[..., str],
    context: Any,
    message: str,
    node_names: Sequence[str],
    graph_debug_info: Any,
) -> str:
    """Name a cause once, not for each device that waited, and with no line of kdist."""
    message = _SUMMARY.sub(_only_cause, message)
    text = original(context, message, list(dict.fromkeys(node_names)), graph_debug_info)
    return _OWN_FRAME.sub("", text)


def _only_cause(summary: re.Match[str]) -> str:
    """Return the cause that all devices report; the whole summary if there are several."""
    causes = {_WAITING.sub("", cause) for cause in _CAUSE.split(f"{summary[1]}\n")[1:]}
    return causes.pop().strip() if len(causes) == 1 else summary[0]


PATCHES = (
    Patch(
        owner=InterpolateRuntimeError,
        name="interpolate",
        replacement=_interpolate,
        why="Prints the traceback of a failed operation again for each device that waits for it.",
        test="test_an_error_is_printed_for_each_device",
        seen_in=TENSORFLOW,
    ),
)
