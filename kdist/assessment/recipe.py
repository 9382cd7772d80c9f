"""What `kdist assess` trains without a script: a recipe that passes."""

from pathlib import Path

from ..data.datasets import DatasetName
from ..data.sources import keras_datasets
from .options import AssessOptions

_RECIPES: dict[DatasetName, str] = {"cifar10": "cifar10-fast"}
_OTHERS = "fast"
# Of Fashion-MNIST: the first is below the targets.
_EPOCHS = 4


def recipe_command(options: AssessOptions, *, replicas: int, run_dir: Path) -> list[str]:
    """Return the program that trains the recipe.

    Args:
        options: What is assessed.
        replicas: Number of replicas.
        run_dir: Folder of the run, which is not kept.
    """
    dataset = options.dataset or found_dataset(options.data_dir)
    command = ["-m", "kdist", "train", "--recipe", _RECIPES.get(dataset, _OTHERS)]
    command += ["--dataset", dataset, "--replicas", f"{replicas}", "--run-dir", str(run_dir)]
    command += ["--no-save-model"]
    if options.data_dir is not None:
        command += ["--data-dir", options.data_dir]
    if dataset not in _RECIPES:
        command += ["--epochs", f"{_EPOCHS}"]
    # The assessment ends the training, not a target of its own.
    return [*command, "--target-accuracy", "0.999"]


def found_dataset(data_dir: str | None) -> DatasetName:
    """Return CIFAR-10 where it is at hand, otherwise the sample that comes with kdist."""
    from ..data import cifar10_files

    if data_dir is not None:
        return "cifar10"
    cache = keras_datasets()
    places = [cache, cache / f"{cifar10_files.VERSIONS[0].folder}-target"]
    return "cifar10" if any(map(cifar10_files.find, places)) else "sample"
