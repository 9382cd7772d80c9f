"""Keep TensorFlow's start-up messages to what a user has to know.

`TF_CPP_MIN_LOG_LEVEL` does not reach what its libraries log while they are loaded (each of them
again): that oneDNN is on, that there is no CUDA. In an interactive session its Python logger
describes every reduction.
"""

import contextlib
import faulthandler
import importlib.abc
import importlib.machinery
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
ERRORS_ONLY = "2"
DEV = Path("/dev")

_SEVERITIES = "IWE"
_HEAD = "WARNING: All log messages before absl::InitializeLog() is called"
# `I0000 00:00:1795392574.095530   22396 port.cc:153] oneDNN …`
_MESSAGE = r"[{}]\d{{4}} \d\d:\d\d:"
_GPU_FILES = ("nvidia*", "dxg")
_NO_DRIVER = "failed call to cuInit"


def quiet_tensorflow() -> None:
    """Show TensorFlow's errors only, unless the user has set `TF_CPP_MIN_LOG_LEVEL`.

    Takes effect when TensorFlow is imported, and none if it has been.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault(VARIABLE, ERRORS_ONLY)
    sys.meta_path.insert(0, _QuietImport())


class _QuietImport(importlib.abc.MetaPathFinder):
    """Filters what TensorFlow writes while it is imported, whoever imports it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> Any:
        spec = None
        if fullname == "tensorflow":
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_quietly(module: ModuleType) -> None:
            del loader.exec_module
            sys.meta_path.remove(self)
            with quiet_stderr():
                execute(module)
            _quiet_logger(module)

        loader.exec_module = execute_quietly
        return spec


def _quiet_logger(tensorflow: Any) -> None:
    """Undo the level that TensorFlow gives its logger in an interactive session."""
    logger: logging.Logger = tensorflow.get_logger()
    if logger.level == logging.INFO:
        logger.setLevel(logging.WARNING)


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what is written to standard error, then write it without TensorFlow's messages.

    Messages below `TF_CPP_MIN_LOG_LEVEL` are dropped. If the user has set it to 0, nothing is held
    back.
    """
    level = os.environ.get(VARIABLE, ERRORS_ONLY)
    with contextlib.ExitStack() as stack:
        if level != "0":
            with contextlib.suppress(OSError):  # there is no standard error, or no space
                stack.enter_context(_filtered(level))
        yield


@contextlib.contextmanager
def _filtered(level: str) -> Iterator[None]:
    with tempfile.TemporaryFile() as held, open(os.dup(2), "wb", buffering=0) as shown:
        # What is held is lost in a crash: this says at least where it was.
        reports_crash = not faulthandler.is_enabled()
        if reports_crash:
            faulthandler.enable(shown)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(shown.fileno(), 2)
            if reports_crash:
                faulthandler.disable()
            held.seek(0)
            shown.write(without_messages(held.read().decode(errors="replace"), level).encode())


def without_messages(text: str, level: str, *, dev: Path = DEV) -> str:
    """Remove TensorFlow's messages below a level from text.

    Args:
        text: What was written to standard error.
        level: `TF_CPP_MIN_LOG_LEVEL`: 1 removes information, 2 warnings too, 3 errors too.
        dev: The folder of device files. Without a GPU in it, CUDA need not start.
    """
    dropped = _SEVERITIES[: int(level)] if level.isdecimal() else ""
    patterns = [re.escape(_HEAD)]
    if dropped:
        patterns.append(_MESSAGE.format(dropped))
    if not any(any(dev.glob(name)) for name in _GPU_FILES):
        patterns.append(_MESSAGE.format("E") + ".*" + _NO_DRIVER)
    is_dropped = re.compile("|".join(patterns)).match
    return "".join(line for line in text.splitlines(keepends=True) if not is_dropped(line))
