"""The process of a point on several workers, which starts them as `kdist launch` does.

`python -m kdist.sweep.workers RUN.json`, with the file of `worker.py` and the number of workers in
it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.launcher import launch
from ..launch.options import LaunchOptions
from ..launch.workers import WorkersOutcome
from ..signals import end_with_parent

FIRST_ERROR = "kdist sweep: the first error of a worker:"
"""A line of `errors.log`; the error of the worker that failed first stands behind it."""

_WORKER = "kdist.sweep.worker"


def main() -> None:
    """Train on as many workers as the file says, and end with the code of the first that failed."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    end_with_parent(order["parent"])
    try:
        code = launch(
            ["-m", _WORKER, sys.argv[1]], LaunchOptions(workers=order["workers"]), report=_report
        )
    except UserError as error:
        print(error, file=sys.stderr)
        code = 2
    sys.exit(code)


def _report(outcome: WorkersOutcome, _: str) -> None:
    worker = outcome.failed
    if worker is not None:
        print(f"{FIRST_ERROR}\n{worker.last_error()}", file=sys.stderr, flush=True)
        if worker.is_stopped:
            stood = f"worker {worker.rank} stood still, stopped by a signal, and was killed"
            print(f"kdist: error: {stood}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
