"""The process of one point, or one worker of it: `python -m kdist.sweep.worker RUN.json`."""

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import TrainingError, UserError
from ..signals import end_with_parent
from ..training.config import TrainConfig


def main() -> None:
    """Train as the file says, with `config`, `ablate`, `parent`, `resume` and `workers`."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # A run that outlives the sweep would also write into a folder that is taken from it;
    # several workers end with their launcher.
    if order["workers"] == 1:
        end_with_parent(order["parent"])
    from ..training.run import train

    try:
        result = train(
            TrainConfig.from_dict(order["config"]),
            verbose=2,
            ablate=tuple(order["ablate"]),
            resume=order["resume"],
        )
    except (UserError, TrainingError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    if result.interrupted and result.signal is not None:  # too few epochs to measure
        print(f"interrupted by {result.signal.name}", file=sys.stderr)
        sys.exit(128 + result.signal)


if __name__ == "__main__":
    main()
