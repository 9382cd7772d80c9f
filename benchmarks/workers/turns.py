"""A process of a `Group`: makes candidates, and runs one for each line of standard input."""

import json
import os
import sys

from . import candidates


def main(kind: str, settings: str) -> None:
    """Run the candidates by name until standard input ends."""
    turns = getattr(candidates, kind)(**json.loads(settings))
    for turn in turns.values():
        turn()  # traces it
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(turns[line.strip()]()), flush=True)
    os._exit(0)  # TensorFlow would wait for the other workers


if __name__ == "__main__":
    main(*sys.argv[1:])
