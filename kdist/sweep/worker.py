"""The process of one point, or one worker of it: `python -m kdist.sweep.worker RUN.json`."""

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
from ..training.config import TrainConfig


def main() -> None:
    """Train as the file says, with `config`, `resume` and `workers`."""
    file = Path(sys.argv[1])
    order: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    from ..training.images import load_same_images
    from ..training.run import train

    earlier = _summary_of_an_earlier(file.parent.parent)
    try:
        result = train(
            TrainConfig.from_dict(order["config"]),
            verbose=2,
            resume=order["resume"],
            load=functools.partial(load_same_images, earlier=earlier),
        )
    except (UserError, TrainingError) as error:
        print(error, file=sys.stderr)
        if isinstance(error, UserError):
            answer(mistake=str(error), refused=isinstance(error, RefusedCheckpointsError))
        sys.exit(2 if isinstance(error, UserError) else 1)
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


if __name__ == "__main__":
    main()
