"""Where Keras's callbacks keep the state of a training."""

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
"""Attributes by class, each of which begins with other values in every fit."""

STATELESS: list[type[keras.callbacks.Callback]] = [
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TerminateOnNaN,
]
"""Callbacks that keep nothing from one step to the next."""

_BASE_ATTRIBUTES = frozenset(vars(keras.callbacks.Callback()))


def has_attributes(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback keeps anything besides what Keras gives to every one."""
    return not set(vars(callback)) <= _BASE_ATTRIBUTES


def has_swapped_averages(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback has put the averages in the place of the weights, for a while."""
    return getattr(callback, "_ema_weights_in_model", False)


def flush_summaries(callback: keras.callbacks.TensorBoard) -> None:
    """Have on the disk what a `TensorBoard` callback has written."""
    for writer in callback._writers.values():
        writer.flush()


def defer_average(callback: keras.callbacks.SwapEMAWeights) -> None:
    """Have a callback keep the weights as they are after the last epoch, and not their average.

    In the last epoch it overwrites them, so that no longer training could continue from them.
    """
    callback.set_params({**(callback.params or {}), "epochs": -1})


def finish_average(callback: keras.callbacks.SwapEMAWeights) -> None:
    """Do after the last epoch what `defer_average` has put off."""
    if callback.swap_on_epoch:
        callback._finalize_ema_values()
