"""`warm_up_ema`: a moving average of weights that soon forgets the first ones."""

from typing import Any

from .. import _upstream
from ..errors import UserError


def warm_up_ema(optimizer: Any) -> Any:
    """Start the moving average of weights with a small momentum that rises to `ema_momentum`.

    At step t, counted from 0, the momentum is `min(ema_momentum, (1 + t) / (10 + t))`; the average
    starts with the weights after the first step, as in Keras. Without this, an average with
    momentum 0.9999 still consists to 96 % of the first weights after 440 steps, and is useless for
    the first few thousand steps.

    The average is Keras's own: evaluated by `keras.callbacks.SwapEMAWeights`, copied to the weights
    at the end of `fit`, the same on any number of replicas, and part of `Checkpoint`. A `.keras`
    file does not record the warm-up: call this again for the optimizer of a loaded model that you
    train further. Past step `9 / (1 - ema_momentum)` it makes no difference.

    Args:
        optimizer: An optimizer with `use_ema=True`, or one that wraps or combines such optimizers,
            before its first step.

    Returns:
        The same optimizer.

    Raises:
        UserError: It keeps no average.

    Example:
        ```python
        sgd = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9999)
        model.compile(kdist.optimizers.warm_up_ema(sgd), "sparse_categorical_crossentropy")
        model.fit(train, validation_data=test, callbacks=[keras.callbacks.SwapEMAWeights()])
        ```

    Source: `num_updates` of TensorFlow's `tf.train.ExponentialMovingAverage`.
    """
    averaging = _upstream.averaging_optimizers(optimizer)
    if not averaging:
        raise UserError(
            f"warm_up_ema received the optimizer {type(optimizer).__name__}, which keeps no average"
            " of weights: make it with use_ema=True, ema_momentum=0.9999, for example."
        )
    for one in averaging:
        _upstream.warm_up_average(one)
    return optimizer
