"""Training of a user's model for a few steps."""

import warnings

import keras

from ...strategies.mirrored_strategy import MirroredStrategy
from ...training.user_model.compiled_model import check_model_result
from ...training.user_model.user_data import UserData
from ...training.user_model.user_functions import UserFunctions


def train_model(
    functions: UserFunctions,
    strategy: MirroredStrategy,
    data: UserData,
    *,
    global_batch: int,
    epochs: int,
    callback: keras.callbacks.Callback,
) -> None:
    """Make the user's model, and train it step by step until the callback ends the training."""
    model = check_model_result(strategy.build(functions.make_model), function="build")
    strategy.model_state(model).chosen_steps = None
    model.steps_per_execution = 1
    arguments = UserData(training=data.training).fit_arguments(batch=global_batch)
    with warnings.catch_warnings():
        # Keras warns after the first epoch if it does not know the number of batches.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model.fit(**arguments, epochs=epochs, verbose=0, callbacks=[callback])
