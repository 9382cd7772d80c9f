"""`find_saved_training`: what a fit that is about to begin continues, if anything."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from .. import _upstream
from .callback_states import CallbackStates
from .options import CheckpointOptions
from .shared_store import SharedStore
from .store import Found, newest_generation
from .training_state import SavedTraining


def find_saved_training(
    model: keras.Model,
    store: SharedStore,
    options: CheckpointOptions,
    *,
    callbacks: CallbackStates,
    settings: Mapping[str, Any],
    announce: Callable[[str], None],
) -> SavedTraining | None:
    """Return the training that a fit continues; no value of the model is changed.

    Args:
        model: The compiled model.
        store: The checkpoints of this training.
        options: Say whether to resume.
        callbacks: Of the fit.
        settings: From `run_settings`.
        announce: Called with a line for each damaged checkpoint.

    Raises:
        UserError: There is none though one is required, or one though none may be; all are damaged;
            or they are of another training.
    """
    found = store.find(options.resume)
    if found is None and options.start_from is not None:
        found = _without_files(newest_generation(options.start_from, announce=announce), callbacks)
    if found is None:
        return None
    saved = SavedTraining(*found)
    _upstream.build_for_fit(model)
    saved.check(model, settings)
    return saved


def _without_files(found: Found | None, callbacks: CallbackStates) -> Found | None:
    """Another training, but for what its callbacks say of files, which are not those of this."""
    if found is None:
        return None
    generation, arrays, state = found
    return generation, arrays, state | {"callbacks": callbacks.without_files(state["callbacks"])}
