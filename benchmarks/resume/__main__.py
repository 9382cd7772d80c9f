"""Checkpoints and exact resume, compared with other ways to save a training.

    python -m benchmarks.resume                           # all rows: about half an hour
    python -m benchmarks.resume --quick                   # few repetitions of each
    python -m benchmarks.resume --rows saves damage --candidates kdist "orbax CheckpointManager"

Trainings and saves run in processes of their own, which are killed by `kill -9` at random instants;
files are damaged at random places. Prints a Markdown table. Peers that are not installed
(`pip install orbax-checkpoint`) are skipped.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from .candidates import CANDIDATES
from .rows import MEASURES, QUICK, Counts


def main() -> None:
    """Print the table of what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=MEASURES, default=[*MEASURES])
    titles = [one.title for one in CANDIDATES]
    parser.add_argument("--candidates", nargs="+", choices=titles, default=titles)
    parser.add_argument("--quick", action="store_true", help="few repetitions of each")
    options = parser.parse_args()
    candidates = [one for one in CANDIDATES if one.title in options.candidates]
    for one in candidates:
        if not one.is_installed:
            print(f"{one.title} is skipped: {one.module} is not installed", file=sys.stderr)
    candidates = [one for one in candidates if one.is_installed]
    _import()
    print(f"| | goal | {' | '.join(one.title for one in candidates)} |")
    print(f"| --- | --- |{' --- |' * len(candidates)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kdist-resume-") as folder:
        for name in options.rows:
            counts = QUICK if options.quick else Counts()
            for row in MEASURES[name](candidates, Path(folder, name), counts):
                cells = [row.cells.get(one.title, "") for one in candidates]
                print(f"| {' | '.join([row.what, row.goal, *cells])} |", flush=True)


def _import() -> None:
    """Import what every process needs, once; TensorFlow itself starts in each."""
    import importlib

    needed = {one.module for one in CANDIDATES if one.module and one.is_installed}
    for name in ("kdist", "keras", "tensorflow", *sorted(needed)):
        importlib.import_module(name)


if __name__ == "__main__":
    main()
