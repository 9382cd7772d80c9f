"""`export_model`: export of a checkpoint's model to a file, without training."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..errors import UserError
from ..files import atomic_path, explain_write_errors
from ..strategies import load_model  # noqa: F401 - registers kdist's classes with Keras
from .checkpoint_file import CheckpointFile, DamagedCheckpointError
from .variable_values import assign_values, find_difference, state_variables


def serialize_model(model: keras.Model) -> str | None:
    """Return a model as JSON, without its weights; `None` if the model has no JSON form."""
    try:
        return str(model.to_json())
    except Exception:  # a user's own get_config may raise anything
        return None


def export_model(
    checkpoint: CheckpointFile,
    path: str | os.PathLike[str],
    *,
    model: keras.Model | None = None,
    averaged: bool = True,
) -> keras.Model:
    """Save the model of a checkpoint as a `.keras` file.

    Args:
        checkpoint: The checkpoint.
        path: The file, which ends in `.keras`.
        model: A built model that gets the weights. By default, the model is created from its
            description in the checkpoint, which may fail for a custom model class. Its file opens
            without kdist, unless the model has layers of `kdist.layers`.
        averaged: Whether to use the averages of the weights if the optimizer keeps averages, as
            `fit` does at its end.

    Returns:
        The model, compiled only if `model` was compiled.

    Raises:
        UserError: The path does not end in `.keras`, the checkpoint is damaged, the model cannot be
            created from the checkpoint, `model` does not match the checkpoint, or the file cannot
            be written.

    Examples:
        ```python
        newest = kdist.checkpoint.checkpoint_files("checkpoints")[0]
        model = kdist.checkpoint.export_model(newest, "model.keras")
        ```
    """
    target = Path(path)
    if target.suffix != ".keras":
        raise UserError(f'cannot export to {target}: pass a path that ends in ".keras"')
    try:
        arrays, state = checkpoint.read()
    except DamagedCheckpointError as error:
        raise UserError(
            f"{checkpoint.path} is damaged: {error}; export an older checkpoint"
        ) from error
    restored = _make_model(checkpoint, state) if model is None else model
    _restore_weights(restored, checkpoint, arrays, state, averaged=averaged)
    hint = "pass a path that can be written, in a folder that exists"
    with explain_write_errors(target, hint=hint), atomic_path(target) as part:
        restored.save(part)
    return restored


def restore_weights(
    model: keras.Model, checkpoint: CheckpointFile, *, averaged: bool = False
) -> None:
    """Assign a checkpoint's weights, or with `averaged` the averages, to a built model.

    Raises:
        DamagedCheckpointError: The checkpoint cannot be read.
        UserError: The checkpoint was saved from a different model, or has no averages.
    """
    arrays, state = checkpoint.read()
    if averaged and not state["averages"]:
        raise UserError(
            f"{checkpoint.path} has no averages of the weights: pass averaged=False to restore the"
            " weights instead"
        )
    _restore_weights(model, checkpoint, arrays, state, averaged=averaged)


def _make_model(checkpoint: CheckpointFile, state: Mapping[str, Any]) -> keras.Model:
    hint = "pass model=, a model made by the same code as for training"
    if state["model"] is None:
        raise UserError(f"{checkpoint.path} has no description of its model: {hint}")
    try:
        return keras.models.model_from_json(state["model"])
    except Exception as error:
        raise UserError(
            f"the model of {checkpoint.path} cannot be created ({error}): {hint}"
        ) from error


def _restore_weights(
    model: keras.Model,
    checkpoint: CheckpointFile,
    arrays: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    *,
    averaged: bool,
) -> None:
    variables = {
        name: variable
        for name, variable in state_variables(model).items()
        if name.startswith("model/")
    }
    saved = {name: arrays[name] for name in state["variables"] if name.startswith("model/")}
    if difference := find_difference(variables, saved):
        raise UserError(f"{checkpoint.path} was saved from a different model: {difference}")
    # During a validation, the weights and their averages may be swapped.
    if averaged != state.get("swapped", False):
        saved |= {name: arrays[average] for name, average in state["averages"].items()}
    assign_values(variables, saved)
