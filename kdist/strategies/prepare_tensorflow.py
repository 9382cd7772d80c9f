"""`prepare_tensorflow`: choose TensorFlow's CPU kernels, and hide its messages below errors.

`TF_CPP_MIN_LOG_LEVEL` does not affect the messages that TensorFlow's libraries log while they are
loaded, such as that oneDNN is on or CUDA is missing; each library repeats these messages. In an
interactive session TensorFlow's Python logger describes every reduction.
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

from ..errors import UserError
from .hardware import enable_onednn

LOG_LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
ERRORS_ONLY = "2"
DEV = Path("/dev")

_SEVERITIES = "IWE"
_EARLY_LOG_NOTE = "WARNING: All log messages before absl::InitializeLog() is called"
# `I0000 00:00:1795392574.095530   22396 port.cc:153] oneDNN …`
_MESSAGE_START = r"[{}]\d{{4}} \d\d:\d\d:"
_GPU_FILES = ("nvidia*", "dxg")
_NO_DRIVER = "failed call to cuInit"


def prepare_tensorflow() -> None:
    """Choose TensorFlow's faster kernels for this CPU, and show its errors only.

    Optional; `kdist` commands do the same. TensorFlow leaves oneDNN's kernels off on CPUs with AVX2
    but without AVX-512 VNNI: a convolutional network then trains at half the speed. This function
    turns the kernels on (`TF_ENABLE_ONEDNN_OPTS=1`) and drops messages below errors
    (`TF_CPP_MIN_LOG_LEVEL=2`), also the messages of TensorFlow's libraries while they are loaded.
    A variable that is set already stays as it is. The two kinds of kernels round differently:
    compare runs with the same kernels.

    Raises:
        UserError: TensorFlow is imported already, and has chosen its kernels.

    Examples:
        ```python
        import kdist

        kdist.prepare_tensorflow()
        import keras
        ```
    """
    if "tensorflow" in sys.modules:
        raise UserError(
            "TensorFlow is imported already, and has chosen its kernels: call"
            " kdist.prepare_tensorflow() before anything imports TensorFlow or Keras, or set"
            " TF_ENABLE_ONEDNN_OPTS=1 and TF_CPP_MIN_LOG_LEVEL=2 before the program starts"
        )
    prepare_process()


def prepare_process() -> None:
    """Prepare TensorFlow in a `kdist` command; do nothing if TensorFlow is already imported.

    The `kdist` processes that this process starts prepare themselves.
    """
    enable_onednn()
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault(LOG_LEVEL_VARIABLE, ERRORS_ONLY)
    sys.meta_path.insert(0, _QuietImport())


class _QuietImport(importlib.abc.MetaPathFinder):
    """Filters the messages of TensorFlow's import, wherever the program imports it."""

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
    """Hold back standard error inside the block, then write it without TensorFlow's minor messages.

    Messages below the level of `TF_CPP_MIN_LOG_LEVEL` are dropped. Without the variable, or at
    level 0, nothing is held back.
    """
    level = os.environ.get(LOG_LEVEL_VARIABLE, "0")
    with contextlib.ExitStack() as stack:
        if level != "0":
            with contextlib.suppress(OSError):  # there is no standard error, or no space
                stack.enter_context(_filter_stderr(level))
        yield


@contextlib.contextmanager
def _filter_stderr(level: str) -> Iterator[None]:
    with tempfile.TemporaryFile() as held, open(os.dup(2), "wb", buffering=0) as shown:
        # A crash loses the held text; faulthandler at least prints the place of the crash.
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
            shown.write(drop_messages(held.read().decode(errors="replace"), level).encode())


def drop_messages(text: str, level: str, *, dev: Path = DEV) -> str:
    """Remove TensorFlow's messages below a level of `TF_CPP_MIN_LOG_LEVEL` from text.

    Level 1 removes information, 2 warnings too, 3 errors too. Without a GPU in `dev`, the error
    that CUDA does not start is removed, too.
    """
    dropped = _SEVERITIES[: int(level)] if level.isdecimal() else ""
    patterns = [re.escape(_EARLY_LOG_NOTE)]
    if dropped:
        patterns.append(_MESSAGE_START.format(dropped))
    if not any(any(dev.glob(name)) for name in _GPU_FILES):
        patterns.append(_MESSAGE_START.format("E") + ".*" + _NO_DRIVER)
    is_dropped = re.compile("|".join(patterns)).match
    return "".join(line for line in text.splitlines(keepends=True) if not is_dropped(line))
