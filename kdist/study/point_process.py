"""The process of one point: `python -m kdist.study.point_process RUN.json`.

That of a point on several workers starts them as `kdist launch` does, each as the same program.
"""

import contextlib
import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RefusedCheckpointsError, TrainingError, UserError
from ..files import parse_json, read_text
from ..launch.child import answer
from ..launch.launcher import launch, print_outcome
from ..launch.options import LaunchOptions
from ..launch.workers import WorkersOutcome
from ..training.config import TrainConfig

_PROGRAM = ("-m", "kdist.study.point_process")
_IS_ONE = "worker"  # behind the file, for one of several workers


def main() -> None:
    """Train as the file says, with `config`, `resume` and `workers`."""
    file = Path(sys.argv[1])
    order: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    try:
        if order["workers"] > 1 and _IS_ONE not in sys.argv[2:]:
            options = LaunchOptions(workers=order["workers"])
            sys.exit(launch([*_PROGRAM, str(file), _IS_ONE], options, report=_tell_first_error))
        _train(file, order)
    except (UserError, TrainingError) as error:
        print(error, file=sys.stderr)
        if isinstance(error, UserError):
            answer(mistake=str(error), refused=isinstance(error, RefusedCheckpointsError))
        sys.exit(2 if isinstance(error, UserError) else 1)


def _train(file: Path, order: Mapping[str, Any]) -> None:
    from ..training.images import load_same_images
    from ..training.run import train

    earlier = _summary_of_an_earlier(file.parent.parent)
    result = train(
        TrainConfig.from_dict(order["config"]),
        verbose=2,
        resume=order["resume"],
        load=functools.partial(load_same_images, earlier=earlier),
    )
    if result.interrupted and result.signal is not None:  # too few epochs to measure
        print(f"interrupted by {result.signal.name}", file=sys.stderr)
        sys.exit(128 + result.signal)


def _summary_of_an_earlier(points: Path) -> Mapping[str, Any]:
    """The summary of the run of a point that is done; empty before there is one."""
    for file in sorted(points.glob("*/point.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged
            if parse_json(read_text(file))["status"] == "done":
                return dict(parse_json(read_text(file.parent / "run" / "summary.json")))
    return {}


def _tell_first_error(outcome: WorkersOutcome, then: str) -> None:
    """Print how the workers ended, and answer with the error of the first that failed."""
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
