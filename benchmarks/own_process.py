"""A benchmark's script, run again in a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any


def result(*arguments: str) -> Any:
    """What the script prints as its last line, JSON, given `arguments` after those it has.

    It has oneDNN, which stock Keras leaves off on most CPUs.
    """
    done = subprocess.run(
        [sys.executable, *sys.argv, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
