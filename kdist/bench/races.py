"""What is raced against what: plain data."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..hardware import cpu_flags

LAB_BATCHES = (8, 16, 32, 64, 128, 256, 512, 700)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contestant:
    """One way to do some work, in a process of its own.

    Args:
        name: As in tables.
        program: A name of `kdist.bench.programs.PROGRAMS`.
        settings: What the program is given.
        stock: Import TensorFlow before kdist, so that it makes its own choices.
        environment: Variables set for the process.
    """

    name: str
    program: str
    settings: dict[str, Any]
    stock: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A ratio of speeds that a race is run for.

    Args:
        name: The contestant in question.
        bases: The others; the fastest of them counts.
        goal: The least ratio aimed at, where there is one.
    """

    name: str
    bases: tuple[str, ...]
    goal: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Race:
    """Contestants that take turns."""

    title: str
    contestants: Sequence[Contestant]
    comparisons: Sequence[Comparison] = ()


KERAS, MIRRORED = "stock Keras", "stock MirroredStrategy, two replicas"
KERAS_ONEDNN = "stock Keras with oneDNN"
MIRRORED_ONEDNN = "stock MirroredStrategy with oneDNN"
KERAS_MANY = "stock Keras, 128 steps an execution"
_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "1"}
ONE, TWO = "kdist, one replica", "kdist, two replicas"
NO_NORM, BFLOAT16 = "kdist, no batch norm", "kdist, bfloat16"
EAGER, COMPILED = "PyTorch, eager", "PyTorch, compiled"
JAX = "Keras on JAX"
PLAIN = "kdist, one replica, without oneDNN"
MATMUL = "matrix product"


def has_bfloat16() -> bool:
    """Whether the CPU computes in it, or there is an NVIDIA GPU that does."""
    return bool({"avx512_bf16", "amx_bf16"} & cpu_flags()) or Path("/dev/nvidia0").exists()


def training(depth: int, width: int, batch: int, steps: int, *, few: bool = False) -> Race:
    """The wide residual network with everybody, or with `few` only who is compared most."""
    network = {"depth": depth, "width": width, "batch": batch, "steps": steps}
    everybody = [
        Contestant(name=KERAS, program="keras", settings=network, stock=True),
        Contestant(name=MIRRORED, program="keras", settings={**network, "replicas": 2}, stock=True),
        Contestant(
            name=KERAS_ONEDNN, program="keras", settings=network, stock=True, environment=_ONEDNN
        ),
        Contestant(
            name=MIRRORED_ONEDNN,
            program="keras",
            settings={**network, "replicas": 2},
            stock=True,
            environment=_ONEDNN,
        ),
        Contestant(name=ONE, program="kdist", settings=network),
        Contestant(name=TWO, program="kdist", settings={**network, "replicas": 2}),
        Contestant(name=EAGER, program="torch", settings=network),
        Contestant(name=MATMUL, program="matmul", settings={}),
    ]
    if not few:
        everybody += [
            Contestant(name=NO_NORM, program="kdist", settings={**network, "batch_norm": False}),
            Contestant(name=COMPILED, program="torch", settings={**network, "compiled": True}),
            Contestant(
                name=JAX,
                program="keras_on_jax",
                settings=network,
                environment={"KERAS_BACKEND": "jax"},
            ),
        ]
        if width > 1 and has_bfloat16():
            everybody.append(
                Contestant(
                    name=BFLOAT16,
                    program="kdist",
                    settings={**network, "precision": "mixed_bfloat16"},
                )
            )
    comparisons = [
        Comparison(name=ONE, bases=(KERAS,), goal=1.25),
        Comparison(name=ONE, bases=(KERAS_ONEDNN,)),
        Comparison(name=TWO, bases=(MIRRORED,), goal=1.35),
        Comparison(name=TWO, bases=(MIRRORED_ONEDNN,)),
        Comparison(name=TWO, bases=(ONE,), goal=0.90),
        Comparison(name=ONE, bases=(EAGER, COMPILED), goal=1.15),
        Comparison(name=ONE, bases=(NO_NORM,), goal=0.90),
        Comparison(name=BFLOAT16, bases=(ONE,), goal=1.3),
    ]
    names = {contestant.name for contestant in everybody}
    return Race(
        title=f"WRN-{depth}-{width}, global batch {batch}",
        contestants=everybody,
        comparisons=[c for c in comparisons if {c.name, c.bases[0]} <= names],
    )


def tiny() -> Race:
    """Two dense layers: what is left is what a step costs besides arithmetic."""
    settings = {"batch": 32, "steps": 512}
    return Race(
        title="two dense layers, batch 32",
        contestants=[
            Contestant(name=KERAS, program="tiny", settings=settings, stock=True),
            Contestant(
                name=KERAS_MANY,
                program="tiny",
                settings={**settings, "steps_per_execution": 128},
                stock=True,
            ),
            Contestant(
                name=ONE, program="tiny", settings={**settings, "steps_per_execution": "auto"}
            ),
            Contestant(
                name=PLAIN,
                program="tiny",
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


def inputs() -> Race:
    """The input pipeline with augmentation alone."""
    settings = {"batch": 128, "images": 10_000}  # an epoch of the lab's sample
    return Race(
        title="augmented images, batch 128",
        contestants=[
            Contestant(name=name, program=program, settings=settings, stock=program != "pipeline")
            for name, program in (
                ("kdist.data", "pipeline"),
                ("ImageDataGenerator", "image_data_generator"),
                ("PyDataset with Keras's layers", "py_dataset"),
            )
        ],
        comparisons=[
            Comparison(name="kdist.data", bases=("ImageDataGenerator",), goal=20),
            Comparison(name="kdist.data", bases=("PyDataset with Keras's layers",)),
        ],
    )


def batch_sweep(names: Sequence[str], depth: int, width: int) -> list[Race]:
    """The lab's batch sizes for some of the contestants of `training`."""
    races = []
    for batch in LAB_BATCHES:
        everybody = training(depth, width, batch, max(2, 1024 // batch)).contestants
        races.append(
            Race(
                title=f"WRN-{depth}-{width}, global batch {batch}",
                contestants=[c for c in everybody if c.name in names],
            )
        )
    return races
