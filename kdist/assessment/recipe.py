"""What `kdist assess` trains without a script: a recipe that passes."""

from pathlib import Path

from ..data.datasets import DATASETS, DatasetName
from .options import AssessOptions


def recipe_command(options: AssessOptions, *, replicas: int, run_dir: Path) -> list[str]:
    """Return the program that trains the recipe.

    Args:
        options: What is assessed.
        replicas: Number of replicas.
        run_dir: Folder of the run, which is not kept.
    """
    dataset = options.dataset or found_dataset(options.data_dir)
    command = ["-m", "kdist", "train", *DATASETS[dataset].recipe]
    command += ["--dataset", dataset, "--replicas", f"{replicas}", "--run-dir", str(run_dir)]
    command += ["--no-save-model"]
    if options.seed is not None:
        command += ["--seed", f"{options.seed}"]
    if options.data_dir is not None:
        command += ["--data-dir", options.data_dir]
    # The assessment ends the training, not a target of its own.
    return [*command, "--target-accuracy", "0.999"]


def found_dataset(data_dir: str | None) -> DatasetName:
    """Return CIFAR-10 where it is at hand, otherwise the sample that comes with kdist."""
    from ..data import cifar10_sources

    return "cifar10" if data_dir is not None or cifar10_sources.is_found() else "sample"
