"""The process of a point on several workers, which starts them as `kdist launch` does.

`python -m kdist.sweep.workers RUN.json`, with the file of `worker.py` and the number of workers in
it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.child import answer
from ..launch.launcher import launch, print_outcome
from ..launch.options import LaunchOptions
from ..launch.workers import WorkersOutcome

_WORKER = "kdist.sweep.worker"


def main() -> None:
    """Train on as many workers as the file says, and end with the code of the first that failed."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        code = launch(
            ["-m", _WORKER, sys.argv[1]], LaunchOptions(workers=order["workers"]), report=_report
        )
    except UserError as error:
        print(error, file=sys.stderr)
        answer(mistake=str(error))
        code = 2
    sys.exit(code)


def _report(outcome: WorkersOutcome, then: str) -> None:
    print_outcome(outcome, then)
    worker = outcome.failed
    if worker is None:
        return
    error = worker.last_error()
    if worker.is_stopped:
        stood = f"worker {worker.rank} stood still, stopped by a signal, and was killed"
        error = f"{error}\nkdist: error: {stood}"
    answer(**worker.answers, error=error)


if __name__ == "__main__":
    main()
