"""Attributes of Keras's callbacks that hold the state of a training."""

import keras

STATEFUL: dict[type[keras.callbacks.Callback], tuple[str, ...]] = {
    keras.callbacks.History: ("history", "epoch"),
    keras.callbacks.EarlyStopping: (
        "wait",
        "stopped_epoch",
        "best",
        "best_epoch",
        "best_weights",
    ),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: (
        "best",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
    ),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
}
"""The attributes that hold a callback's state, by class."""

STATELESS: list[type[keras.callbacks.Callback]] = [
    keras.callbacks.CSVLogger,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TerminateOnNaN,
]
"""Callbacks without a state between two steps."""

_BASE_ATTRIBUTES = frozenset(vars(keras.callbacks.Callback()))


def has_attributes(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback has attributes besides the attributes of Keras's base class."""
    return not set(vars(callback)) <= _BASE_ATTRIBUTES


def has_swapped_averages(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback has replaced the weights by their averages for the time being."""
    return getattr(callback, "_ema_weights_in_model", False)


def defer_average(callback: keras.callbacks.SwapEMAWeights) -> None:
    """Keep a callback from overwriting the trained weights with their averages in the last epoch.

    A longer training could not continue from the averages.
    """
    callback.set_params({**(callback.params or {}), "epochs": -1})


def finish_average(callback: keras.callbacks.SwapEMAWeights) -> None:
    """Overwrite the trained weights with their averages, which `defer_average` has put off."""
    if callback.swap_on_epoch:
        callback._finalize_ema_values()
