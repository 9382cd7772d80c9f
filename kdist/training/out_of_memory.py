"""Say which setting to lower where memory ran out."""

import contextlib
from collections.abc import Iterator

from ..data import ImageData
from ..errors import TrainingError
from ..performance.out_of_memory import is_out_of_memory
from .config import TrainConfig
from .model_name import model_name

# Weights, their gradients, and what an optimizer keeps or works with.
_COPIES_OF_WEIGHTS = 3
# Of every convolution: its output, and those of batch norm and ReLU.
_TENSORS_OF_A_CONVOLUTION = 3
# Of the other networks, about: whose outputs training keeps, and validation does not.
_LAYERS = 8


@contextlib.contextmanager
def explain_out_of_memory(config: TrainConfig, data: ImageData | None) -> Iterator[None]:
    """Turn running out of memory into a line that says which setting to lower.

    Args:
        config: The settings.
        data: The images; `None` for data and a model of the user's.

    Raises:
        TrainingError: Memory ran out in the block.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if data is None:
            raise TrainingError(
                f"out of memory: lower --batch-size, which is {config.batch_size}, or make the"
                f" model of {model_name(config.to_dict())} smaller"
            ) from error
        sizes = memory_by_setting(config, data.image_shape)
        can_be_less = [name for name in sizes if getattr(config, name) > 1]
        name = max(can_be_less, key=lambda setting: sizes[setting], default=_smallest(config))
        raise TrainingError(
            f"out of memory: lower --{name.replace('_', '-')}, which is {getattr(config, name)} and"
            f" takes most of it ({model_name(config.to_dict())}, {config.batch_size} training"
            f" and {config.val_batch_size} validation images per replica)"
        ) from error


def _smallest(config: TrainConfig) -> str:
    """What there is to lower where all else is 1."""
    return "depth" if config.network == "wide_resnet" else "val_batch_size"


def memory_by_setting(config: TrainConfig, image_shape: tuple[int, ...]) -> dict[str, float]:
    """Estimate what takes the memory of one replica, in numbers, by the setting that decides it.

    Training keeps the outputs of all layers for the gradients, validation those of one at a time.

    Args:
        config: The settings.
        image_shape: Height, width and channels of an image.

    Returns:
        Numbers of `batch_size`, `val_batch_size` and, of a WideResNet, `width`; of other networks
        only the batches are compared.
    """
    if config.network != "wide_resnet":
        return {"batch_size": _LAYERS * config.batch_size, "val_batch_size": config.val_batch_size}
    height, breadth = image_shape[:2]
    convolutions = (config.depth - 4) // 3  # of each stage
    pooled = 4 if config.stem_pool else 1
    weights = outputs = largest = 0.0
    before = 16
    for stage in range(3):
        channels = 16 * config.width * 2**stage
        pixels = height * breadth / 4**stage / pooled
        weights += 9 * channels * (before + (convolutions - 1) * channels)
        outputs += _TENSORS_OF_A_CONVOLUTION * convolutions * pixels * channels
        largest = max(largest, _TENSORS_OF_A_CONVOLUTION * pixels * channels)
        before = channels
    return {
        "batch_size": config.batch_size * outputs,
        "val_batch_size": config.val_batch_size * largest,
        "width": _COPIES_OF_WEIGHTS * weights,
    }
