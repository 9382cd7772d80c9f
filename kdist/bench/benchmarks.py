"""The benchmarks of `kdist bench` and their candidates, as plain data."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ..performance.hardware import cpu_flags
from ..performance.onednn import is_on_by_default
from .benchmark import Benchmark, Candidate, Comparison

LAB_BATCHES = (8, 16, 32, 64, 128, 256, 512, 700)


KERAS, MIRRORED = "stock Keras", "stock MirroredStrategy, two replicas"
KERAS_ONEDNN = "stock Keras with oneDNN"
MIRRORED_ONEDNN = "stock MirroredStrategy with oneDNN"
KERAS_MANY = "stock Keras, 128 steps per execution"
_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "1"}
ONE, TWO = "kdist, one replica", "kdist, two replicas"
NO_NORM, BFLOAT16 = "kdist, no batch norm", "kdist, bfloat16"
EAGER, COMPILED = "PyTorch, eager", "PyTorch, compiled"
JAX = "Keras on JAX"
PLAIN = "kdist, one replica, without oneDNN"
MATMUL = "matrix product"


def has_bfloat16() -> bool:
    """Whether the CPU supports bfloat16, or there is an NVIDIA GPU, which does."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags()) or Path("/dev/nvidia0").exists()


def training(depth: int, width: int, batch: int, steps: int, *, quick: bool = False) -> Benchmark:
    """Return the benchmark of training a WideResNet; with `quick`, fewer candidates."""
    network = {"depth": depth, "width": width, "batch": batch, "steps": steps}
    candidates = [
        Candidate(name=KERAS, workload="keras", settings=network, stock=True),
        Candidate(name=MIRRORED, workload="keras", settings={**network, "replicas": 2}, stock=True),
        Candidate(name=ONE, workload="kdist", settings=network),
        Candidate(name=TWO, workload="kdist", settings={**network, "replicas": 2}),
        Candidate(name=EAGER, workload="torch", settings=network),
        Candidate(name=MATMUL, workload="matmul", settings={}),
    ]
    if not is_on_by_default():
        candidates[2:2] = [
            dataclasses.replace(candidate, name=name, environment=_ONEDNN)
            for candidate, name in zip(candidates[:2], (KERAS_ONEDNN, MIRRORED_ONEDNN), strict=True)
        ]
    if not quick:
        candidates += [
            Candidate(name=NO_NORM, workload="kdist", settings={**network, "batch_norm": False}),
            Candidate(name=COMPILED, workload="torch", settings={**network, "compiled": True}),
            Candidate(
                name=JAX,
                workload="keras_on_jax",
                settings=network,
                environment={"KERAS_BACKEND": "jax"},
            ),
        ]
        if width > 1 and has_bfloat16():
            candidates.append(
                Candidate(
                    name=BFLOAT16,
                    workload="kdist",
                    settings={**network, "precision": "mixed_bfloat16"},
                )
            )
    comparisons = [
        Comparison(name=ONE, bases=(KERAS,), goal=1.5),
        Comparison(name=ONE, bases=(KERAS_ONEDNN,)),
        Comparison(name=TWO, bases=(MIRRORED,), goal=1.35),
        Comparison(name=TWO, bases=(MIRRORED_ONEDNN,)),
        Comparison(name=TWO, bases=(ONE,), goal=0.95),
        Comparison(name=ONE, bases=(EAGER, COMPILED), goal=1.25),
        Comparison(name=ONE, bases=(NO_NORM,)),
        Comparison(name=BFLOAT16, bases=(ONE,), goal=1.3),
        Comparison(name=ONE, bases=(KERAS,), goal=1, of="memory"),
        Comparison(name=TWO, bases=(MIRRORED,), goal=1, of="memory"),
    ]
    names = {candidate.name for candidate in candidates}
    return Benchmark(
        title=f"WRN-{depth}-{width}, global batch {batch}",
        candidates=candidates,
        comparisons=[c for c in comparisons if {c.name, c.bases[0]} <= names],
    )


def tiny() -> Benchmark:
    """Return the benchmark of two dense layers, which measures the overhead of a step."""
    settings = {"batch": 32, "steps": 512}
    return Benchmark(
        title="two dense layers, batch 32",
        candidates=[
            Candidate(name=KERAS, workload="tiny", settings=settings, stock=True),
            Candidate(
                name=KERAS_MANY,
                workload="tiny",
                settings={**settings, "steps_per_execution": 128},
                stock=True,
            ),
            Candidate(
                name=ONE, workload="tiny", settings={**settings, "steps_per_execution": "auto"}
            ),
            Candidate(
                name=PLAIN,
                workload="tiny",
                settings={**settings, "steps_per_execution": "auto"},
                environment={"TF_ENABLE_ONEDNN_OPTS": "0"},
            ),
        ],
        comparisons=[
            Comparison(name=ONE, bases=(KERAS,), goal=3),
            Comparison(name=ONE, bases=(KERAS_MANY,)),
            Comparison(name=PLAIN, bases=(KERAS_MANY,)),
        ],
    )


def inputs() -> Benchmark:
    """Return the benchmark of the input pipeline with augmentation, without training."""
    settings = {"batch": 128, "images": 10_000}  # an epoch of the lab's sample
    return Benchmark(
        title="augmented images, batch 128",
        candidates=[
            Candidate(name=name, workload=workload, settings=settings, stock=workload != "pipeline")
            for name, workload in (
                ("kdist.data", "pipeline"),
                ("ImageDataGenerator", "image_data_generator"),
                ("PyDataset with Keras's layers", "py_dataset"),
            )
        ],
        comparisons=[
            Comparison(name="kdist.data", bases=("ImageDataGenerator",)),
            Comparison(name="kdist.data", bases=("PyDataset with Keras's layers",)),
        ],
    )


def batch_sweep(names: Sequence[str], depth: int, width: int) -> list[Benchmark]:
    """Return benchmarks with the lab's batch sizes, for some candidates of `training`."""
    benchmarks = []
    for batch in LAB_BATCHES:
        candidates = training(depth, width, batch, max(2, 1024 // batch)).candidates
        benchmarks.append(
            Benchmark(
                title=f"WRN-{depth}-{width}, global batch {batch}",
                candidates=[c for c in candidates if c.name in names],
                comparisons=[Comparison(name=ONE, bases=(EAGER,), goal=1)]
                if {ONE, EAGER} <= set(names)
                else (),
            )
        )
    return benchmarks
