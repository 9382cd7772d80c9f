"""Have all runs of a sweep or a search train on the same images, whichever are found when."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ..data import ImageData
from ..data.fashion_mnist_files import SAMPLE
from ..errors import UserError
from .config import TrainConfig
from .pipelines import load_data


def describe_images(data: ImageData) -> dict[str, Any]:
    """Say where images are from and how many there are, as a run's `summary.json` does."""
    return {
        "data": data.source,
        "training_images": len(data.train_images),
        "validation_images": len(data.test_images),
    }


def load_same_images(
    config: TrainConfig, earlier: Mapping[str, Any], *, announce: Callable[[str], None] = print
) -> ImageData:
    """Load the images that earlier runs have trained on.

    If the earlier runs fell back to the embedded sample, it is used again.

    Args:
        config: The settings, those of the earlier runs.
        earlier: The earlier runs' images, as `describe_images` has them; values may be missing.
        announce: Called with a line that names their source.

    Raises:
        UserError: There are other numbers of images, or none can be found.
    """
    if earlier.get("data") == SAMPLE and config.data_dir is None:
        config = dataclasses.replace(config, dataset="sample")
    data = load_data(config, announce=announce)
    found = describe_images(data)
    if any(earlier.get(name) not in (None, found[name]) for name in found if name != "data"):
        raise UserError(
            f"found {found['training_images']} training and {found['validation_images']} validation"
            f" images ({data.source}), but earlier runs had {earlier.get('training_images')} and"
            f" {earlier.get('validation_images')} ({earlier.get('data')}): make these available, or"
            " begin anew in another --output with --dataset sample or --data-dir"
        )
    return data
