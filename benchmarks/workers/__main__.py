"""Several workers: the model of one replica, their speed, and what they send each other.

    python -m benchmarks.workers                            # all rows but the next one
    python -m benchmarks.workers --rows all-parity          # every parity case: half an hour
    python -m benchmarks.workers --rows speed collectives --rounds 15
    python -m benchmarks.workers --rows link                # as the superuser

Workers are processes of this machine, two cores for two of them. What is compared takes turns. The
link is one between network namespaces; where they cannot be made, its row is skipped.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from .rows import MEASURES, USUAL


def main() -> None:
    """Print the table of what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=MEASURES, default=[*USUAL])
    parser.add_argument("--rounds", type=int, default=9, help="turns of each candidate")
    options = parser.parse_args()
    print("| | goal | |\n| --- | --- | --- |", flush=True)
    for name in options.rows:
        for row in MEASURES[name](options.rounds):
            print(f"| {row.what} | {row.goal} | {row.found} |", flush=True)


if __name__ == "__main__":
    main()
