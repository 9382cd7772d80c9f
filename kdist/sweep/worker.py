"""The process of one point, or one worker of it: `python -m kdist.sweep.worker RUN.json`."""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ..errors import TrainingError, UserError
from ..training.config import TrainConfig

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Train as the file says: `{"config": …, "ablate": […], "parent": PID, "resume": …}`."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if order.get("workers", 1) == 1:  # several end with their launcher
        end_with(order["parent"])
    from ..training.run import train

    try:
        result = train(
            TrainConfig.from_dict(order["config"]),
            verbose=2,
            ablate=tuple(order["ablate"]),
            resume=order.get("resume", False),
        )
    except (UserError, TrainingError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    if result.interrupted and result.signal is not None:  # too few epochs to measure
        print(f"interrupted by {result.signal.name}", file=sys.stderr)
        sys.exit(128 + result.signal)


def end_with(parent: int) -> None:
    """Be killed when the sweep is.

    A run that outlives a killed sweep would take cores from the one that is started next, and
    write into a folder that is taken from it.

    Args:
        parent: The sweep's process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        sys.exit(1)


if __name__ == "__main__":
    main()
