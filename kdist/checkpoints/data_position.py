"""`start_fit_at`: where a resumed `fit` begins in its data."""

import keras

from .. import _upstream


def start_fit_at(model: keras.Model, *, epoch: int, batch: int) -> str | None:
    """Have a `fit` that is about to begin train from a batch of an epoch on.

    Its first epoch is `epoch`; the steps that callbacks and the progress bar are given begin at
    `batch`, and the data are those that an uninterrupted fit trains there.

    - `kdist.data.training_batches`: the batch is made at once, whichever it is.
    - Arrays, and a `tf.data.Dataset`: an order that depends on the iterators made before is brought
      to where it would be. Batches of the epoch before `batch` are passed over. Earlier epochs are
      read again where a data set keeps something of what was read, such as `cache` behind
      `shuffle`.
    - `keras.utils.PyDataset`: begins at its index; the hooks of the earlier epochs are called.
    - Generators, PyTorch's `DataLoader` and others are read from their beginning.

    Call it in `on_train_begin`, after `_upstream.patches.install()` before `fit`.

    Args:
        model: A model whose `fit` is under way.
        epoch: The first epoch to train, counted from 0.
        batch: Its first batch, counted from 0. With as many as the epoch has, it trains none,
            and ends.

    Returns:
        `None`, or a sentence that says what of these data is not exact.

    Raises:
        RuntimeError: No `fit` of this model is under way.
    """
    return _upstream.start_fit_at(model, epoch=epoch, batch=batch)
