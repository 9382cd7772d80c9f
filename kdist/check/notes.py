"""What a check says besides: its batches, and what was not compared."""

from collections.abc import Sequence

import keras
import numpy as np

from .. import _upstream
from .batches import Batches
from .options import CheckOptions
from .training import Trained


def batches_text(batches: Batches, options: CheckOptions) -> str:
    """Say how many samples the steps of an epoch have."""
    sizes = [batches.batch_size] * (batches.steps - 1) + [batches.last]
    shown = ", ".join(map(str, sizes)) if len(sizes) <= 6 else f"{sizes[0]} … {sizes[-1]}"
    epochs = f"{options.epochs} epochs" if options.epochs > 1 else "1 epoch"
    return f"{epochs} of batches of {shown} samples"


def notes_on(one: Trained, batches: Batches) -> list[str]:
    """What the user should know besides.

    Args:
        one: The training on one replica.
        batches: The samples.
    """
    record = one.record
    notes = []
    if record.unevaluated and not _is_only_trained(one.model):
        notes.append(f"evaluate is not compared, as it fails on one replica: {record.unevaluated}")
    if batches.last == batches.batch_size:
        why = "the data have batches of a fixed size" if batches.is_fixed else "there are too few"
        notes.append(f"no batch was uneven, as {why}" + " samples" * (not batches.is_fixed))
    losses = [v for item, v in record.values.items() if item.kind == "loss"]
    if any(not np.all(np.isfinite(value)) for value in losses):
        notes.append(
            "the loss is NaN or infinite on one replica, so little can be compared: lower the"
            " learning rate, or look for a logarithm of 0"
        )
    return notes


def _is_only_trained(model: keras.Model) -> bool:
    """Whether a model is not meant for `evaluate`: it has a `train_step`, but nothing to test."""
    return _upstream.overridden_steps(model) == ["train_step"] and model.loss is None


def joined(names: Sequence[str]) -> str:
    """Names in words: `this, that and these`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
