"""Run a benchmark's script again in a separate process."""

import json
import os
import subprocess
import sys
from typing import Any


def result(*arguments: str, timeout_seconds: float | None = None) -> Any:
    """Run the script with additional arguments, and return its last line of output, parsed as JSON.

    oneDNN is on, which stock Keras does not use on most CPUs. After `timeout_seconds` the process
    is ended, and `subprocess.TimeoutExpired` raised.
    """
    done = subprocess.run(
        [sys.executable, *sys.argv, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout_seconds,
    )
    return json.loads(done.stdout.splitlines()[-1])
