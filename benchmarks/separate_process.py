"""Run a benchmark's script again in a separate process."""

import json
import os
import subprocess
import sys
from typing import Any


def result(*arguments: str) -> Any:
    """Run the script with additional arguments, and return its last line of output, parsed as JSON.

    oneDNN is on, which stock Keras does not use on most CPUs.
    """
    done = subprocess.run(
        [sys.executable, *sys.argv, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
