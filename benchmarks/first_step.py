"""The first training step: tracing, planning and TensorFlow's compilation of it.

    python -m benchmarks.first_step                      # about half an hour on two cores
    python -m benchmarks.first_step --networks wrn-16-1 --rounds 1

Each candidate trains one step in a process of its own, on logical CPUs but by the path of GPUs.
Prints seconds of processor time of stock Keras on one device ("plain"), of TensorFlow's strategy
with synchronized batch norm ("stock") and of kdist, and median ratios over rounds that alternate.
"""

import functools
import itertools
import json
import statistics
import time

from .measure import Table, format_ratio, make_parser, run_again, take_turns
from .networks import make_transformer
from .step_counts.candidates import NETWORKS as COUNTED
from .step_counts.candidates import ROWS, make_candidate, split_cpu

SIX_LAYERS = make_transformer(
    words=1000, tokens=16, width=48, heads=4, layers=6, has_positions=True
)
NETWORKS = {
    "wrn-16-1": COUNTED["wrn-16-1"],
    "resnet50": COUNTED["resnet50"],
    "six-layer transformer": SIX_LAYERS,
}


def main() -> None:
    """Time every network, strategy and number of replicas, and print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--replicas", nargs="+", type=int, default=[2, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--xla", action="store_true", help="compile steps by XLA")
    parser.add_argument("--candidate", nargs=3, help="one process: network, strategy, replicas")
    options = parser.parse_args()
    if options.candidate:
        network, kind, replicas = options.candidate
        print(json.dumps(first_step(network, kind, int(replicas), uses_xla=options.xla)))
        return
    columns = ["network", "replicas", "plain", "stock", "kdist", "kdist : plain", "kdist : stock"]
    table = Table(*columns, file=options.json)
    for network, replicas in itertools.product(options.networks, options.replicas):
        counts = {"plain": 1, "stock": replicas, "kdist": replicas}
        candidates = {
            kind: functools.partial(run_again, "--candidate", network, kind, str(count))
            for kind, count in counts.items()
        }
        seconds = take_turns(candidates, options.rounds)
        times = [f"{statistics.median(seconds[kind]):.1f} s" for kind in counts]
        ratios = [format_ratio(seconds["kdist"], seconds[kind]) for kind in ("plain", "stock")]
        table.add(network, str(replicas), *times, *ratios)


def first_step(name: str, kind: str, replicas: int, *, uses_xla: bool) -> float:
    """Train a step, and return its seconds of processor time."""
    network = NETWORKS[name]
    split_cpu(replicas)
    model = make_candidate(network, kind, replicas, jit_compile=uses_xla)
    x, y = network.random_samples(ROWS * replicas)
    start = time.process_time()
    model.fit(x, y, batch_size=len(x), verbose=0)
    return time.process_time() - start


if __name__ == "__main__":
    main()
