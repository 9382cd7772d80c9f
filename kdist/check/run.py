"""`check_model`: train a model on one replica and on several, compare, and explain."""

from collections.abc import Callable, Sequence
from typing import Any

from .. import _upstream
from .check import Check
from .options import CheckOptions
from .result import CheckResult


def check_model(
    build: Callable[..., Any],
    data: Any,
    *,
    replicas: Sequence[int] = (2, 3),
    steps: int = 6,
    batch_size: int | None = None,
    seed: int = 0,
    synchronize: bool = True,
    stock: bool = True,
) -> CheckResult:
    """Check that a model is the same on several replicas, and if not, find out why.

    It is trained on one replica of stock Keras and on each number of replicas of kdist, on logical
    CPUs if there are too few GPUs. All runs have the same initial weights, samples and seed, use
    float64 if the model allows it, and have an uneven last batch in each epoch. Weights, the
    optimizer's state, losses and metrics after every step are compared, and `evaluate` and
    `predict` after training. If they differ, experiments look for the cause, such as a layer that
    uses the mean of its batch. Afterwards, Keras's settings and the state of all random generators
    of the program are restored.

    Args:
        build: A function that returns a compiled `keras.Model`; it may take KerasTuner's `hp`.
        data: A function that returns the data, or the data itself: arrays `(x, y)` or `(x, y,
            sample_weight)`, `(train, validation)`, a `tf.data.Dataset` or a
            `keras.utils.PyDataset`. Only training data are used.
        replicas: Numbers of replicas of kdist.
        steps: Training steps, in two epochs if there are at least 4.
        batch_size: Samples per global batch of arrays; by default at least 8, divisible by all
            numbers of replicas. Data in batches keep theirs.
        seed: The seed of all training runs.
        synchronize: Create the model by `strategy.build(build)`; `False` creates it in
            `strategy.scope()`, where batch norms stay as they are.
        stock: Train under `tf.distribute.MirroredStrategy` too, to show what it would give.

    Returns:
        The result: `equal`, `differences`, `causes`, `assert_equal()`; `print` shows it.

    Raises:
        UserError: An argument is invalid, the model does not train on one replica, or TensorFlow
            has already started with fewer logical CPUs.

    Example:
        ```python
        def test_that_replicas_do_not_matter():
            kdist.check_model(build, data, replicas=(2, 3)).assert_equal()
        ```
    """
    options = CheckOptions(
        replicas=replicas,
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        synchronize=synchronize,
        stock=stock,
    )
    with _upstream.kept_seeds():
        return Check(build, data, options).result()
