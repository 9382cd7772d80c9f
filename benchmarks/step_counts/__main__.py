"""The work of several GPUs in a training step, counted on logical CPUs.

    python -m benchmarks.step_counts                                  # all models: half an hour
    python -m benchmarks.step_counts --models wrn-16-1,transformer --replicas 1,2 --unknown-size
    python -m benchmarks.step_counts --json counts.json

`plain` is stock Keras on one device, `stock` TensorFlow's MirroredStrategy with synchronized batch
norm, `kdist` kdist's. Each trains one step, without XLA, of the graph that TensorFlow's optimizer
has made; sums take the way that they take on GPUs. Copies between the memories of host and GPU
follow from the kernels that TensorFlow registers for GPUs. `counts.py` defines every count.
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path

# Kernels of CPUs alone, whatever TensorFlow would choose.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from .candidates import NETWORKS, ROWS, run_step, split_cpu
from .counts import Exchanges, StepCounts, count_work
from .step_graph import gpu_kernels


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models", type=_parse_words, default=[*NETWORKS], help=", ".join(NETWORKS)
    )
    parser.add_argument(
        "--replicas", type=_parse_numbers, default=[1, 2, 4, 8], help="default 1,2,4,8"
    )
    parser.add_argument("--unknown-size", action="store_true", help="of the batches")
    parser.add_argument("--kinds", type=_parse_words, default=["plain", "stock", "kdist"])
    parser.add_argument("--json", type=Path, help="file for the counts")
    options = parser.parse_args()
    if unknown := set(options.models) - set(NETWORKS):
        parser.error(f"--models: {', '.join(sorted(unknown))}; there are {', '.join(NETWORKS)}")
    _make_devices(max(options.replicas))
    counts_by_model: dict[str, dict[str, StepCounts]] = {}
    for model in options.models:
        of_model = counts_by_model.setdefault(model, {})
        for kind, replicas in _list_candidates(options.kinds, options.replicas):
            graph = run_step(NETWORKS[model], kind, replicas, unknown_size=options.unknown_size)
            of_model[kind if kind == "plain" else f"{kind} {replicas}"] = count_work(graph, ROWS)
            if options.json is not None:
                options.json.write_text(
                    json.dumps(counts_by_model, indent=1, default=dataclasses.asdict)
                )
        print(_format_table(model, of_model), flush=True)


def _parse_words(text: str) -> list[str]:
    return text.split(",")


def _parse_numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _make_devices(count: int) -> None:
    """Make logical CPUs; an operation runs on one thread."""
    if not gpu_kernels("MatMul"):
        raise SystemExit(
            "this TensorFlow has no kernels for GPUs, from which the memory of tensors follows:"
            " install tensorflow, not tensorflow-cpu"
        )
    split_cpu(count)


def _list_candidates(kinds: list[str], replicas: list[int]) -> list[tuple[str, int]]:
    """Return kinds and numbers of replicas; stock strategies have several replicas."""
    several = [number for number in replicas if number > 1]
    numbers = {"plain": [1], "stock": several, "kdist": replicas}
    return [(kind, number) for kind in kinds for number in numbers[kind]]


def _format_table(model: str, counts_by_candidate: dict[str, StepCounts]) -> str:
    """Return counts as Markdown, a column for each candidate."""
    lines = [
        f"| {model} | {' | '.join(counts_by_candidate)} |",
        f"| --- |{' ---: |' * len(counts_by_candidate)}",
    ]
    for field in dataclasses.fields(StepCounts):
        values = [getattr(counts, field.name) for counts in counts_by_candidate.values()]
        cells = [
            _format_exchanges(value) if isinstance(value, Exchanges) else f"{value:,g}"
            for value in values
        ]
        lines.append(f"| {field.name.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _format_exchanges(exchanges: Exchanges) -> str:
    if not exchanges.packs:
        return "0"
    tensors, size = sum(exchanges.packs), exchanges.bytes / 1e3
    return f"{tensors} in {len(exchanges.packs)}, {size:,.1f} kB"


if __name__ == "__main__":
    main()
