"""The process of a chief or worker: `python -m kdist.tuning.worker FOLDER CORES`."""

import json
import logging
import os
import sys
import threading
from pathlib import Path

from ..errors import UserError
from .run import run_trials
from .search import Search
from .search_folder import SearchFolder


def main() -> None:
    """Run the search's trials as KerasTuner's environment variables say."""
    path, cores = sys.argv[1:]
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    if cores:  # before TensorFlow counts them
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    name = os.environ["KERASTUNER_TUNER_ID"]
    search = Search.from_dict(json.loads(Path(path, "search.json").read_text(encoding="utf-8")))

    def announce(line: str) -> None:
        if name != "chief":
            print(f"{name}: {line}", flush=True)

    try:
        run_trials(search, SearchFolder(path), announce=announce)
    except UserError as error:
        sys.exit(f"{name}: {error}")


def _end_with_the_starter() -> None:
    os.read(sys.stdin.fileno(), 1)  # it ends when the process that started this one has ended
    os._exit(1)


if __name__ == "__main__":
    main()
