"""The first training step: tracing, planning and TensorFlow's compilation of it.

    python -m benchmarks.first_step                      # about ten minutes on two cores
    python -m benchmarks.first_step --networks resnet50 --replicas 2

Each candidate trains one step in a process of its own, on logical CPUs but by the path of GPUs.
Prints seconds of processor time, and the median ratio to stock Keras on one device, over rounds
that alternate.
"""

import functools
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
    """Time every network and number of replicas, and print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--xla", action="store_true", help="compile steps by XLA")
    parser.add_argument("--candidate", nargs=2, help="one process: a network, replicas or `stock`")
    options = parser.parse_args()
    if options.candidate:
        network, replicas = options.candidate
        print(json.dumps(first_step(network, replicas, uses_xla=options.xla)))
        return
    names = ["stock", *map(str, options.replicas)]
    ratios = [f"on {count} : stock" for count in options.replicas]
    table = Table(
        "network", "stock", *(f"on {n}" for n in options.replicas), *ratios, file=options.json
    )
    for network in options.networks:
        candidates = {
            name: functools.partial(run_again, "--candidate", network, name) for name in names
        }
        seconds = take_turns(candidates, options.rounds)
        times = [f"{statistics.median(seconds[name]):.1f} s" for name in names]
        table.add(
            network, *times, *(format_ratio(seconds[name], seconds["stock"]) for name in names[1:])
        )


def first_step(name: str, replicas: str, *, uses_xla: bool) -> float:
    """Train a step, and return its seconds of processor time."""
    network = NETWORKS[name]
    count = 1 if replicas == "stock" else int(replicas)
    split_cpu(count)
    model = make_candidate(
        network, "plain" if replicas == "stock" else "kdist", count, jit_compile=uses_xla
    )
    x, y = network.random_samples(ROWS * count)
    start = time.process_time()
    model.fit(x, y, batch_size=len(x), verbose=0)
    return time.process_time() - start


if __name__ == "__main__":
    main()
