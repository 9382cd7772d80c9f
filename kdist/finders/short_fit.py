"""`fit_steps`: train a user's model for a number of steps, one at a time."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras

from ..errors import UserError
from ..user_model.compiled_model import checked_model
from ..user_model.data import UserData, first_samples
from ..user_model.functions import UserFunctions

if TYPE_CHECKING:
    from ..distribute.mirrored_strategy import MirroredStrategy


class StopAfter(keras.callbacks.Callback):
    """Ends a training after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.done = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count the step."""
        self.done += 1
        if self.done >= self.steps:
            self.model.stop_training = True


def build_model(functions: UserFunctions, strategy: "MirroredStrategy") -> keras.Model:
    """Make the user's model under a strategy, with a step per execution.

    Raises:
        UserError: The function fails, or returns no compiled model.
    """
    model = checked_model(strategy.build(functions.make_model), function="build")
    strategy.auto_steps(model).chosen = None
    model.steps_per_execution = 1
    return model


def fit_steps(
    model: keras.Model,
    data: UserData,
    *,
    global_batch: int,
    steps: int,
    callbacks: Sequence[Any] = (),
) -> None:
    """Train for a number of steps, over as many epochs as it takes.

    Args:
        model: A compiled model.
        data: Only the training data are used. Those with batches of their own keep them.
        global_batch: Samples per step over all replicas, for arrays.
        steps: How many.
        callbacks: Further ones; one may end the training sooner.
    """
    arguments = UserData(training=data.training).fit_arguments(batch=global_batch)
    with warnings.catch_warnings():
        # Keras says so where it does not know the number of batches, after the first epoch.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model.fit(**arguments, epochs=steps, verbose=0, callbacks=[*callbacks, StopAfter(steps)])


def full_batches(data: UserData, global_batch: int) -> UserData:
    """Return data of which every batch is full, for a batch size that they do not have yet.

    Args:
        data: Arrays, or a `tf.data.Dataset`, whose batches are made anew.
        global_batch: Samples per step over all replicas.

    Raises:
        UserError: There are batches of another kind.
    """
    import tensorflow as tf

    if data.has_arrays:
        count = (data.samples() or 0) // global_batch * global_batch
        return UserData(training=first_samples(data.training, count))
    if isinstance(data.training, tf.data.Dataset):
        return UserData(training=data.training.unbatch().batch(global_batch, drop_remainder=True))
    raise UserError(
        "the data function returns batches of its own, whose size cannot be varied: write"
        " def data(batch_size):"
    )


def has_full_batch(data: UserData, global_batch: int) -> bool:
    """Whether the training data have as many samples as a batch."""
    if data.has_arrays:
        return (data.samples() or 0) >= global_batch
    if getattr(data.training, "num_batches", None) == 0:
        return False
    batch = next(iter(data.training), None)
    return batch is not None and int(keras.tree.flatten(batch)[0].shape[0]) >= global_batch
