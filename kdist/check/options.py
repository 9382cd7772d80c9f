"""`CheckOptions`: the arguments of a check, checked without TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..arguments import as_integer
from ..errors import UserError

LEAST_STEPS, MOST_STEPS = 2, 1000
# More logical CPUs than this take minutes to trace.
MOST_REPLICAS = 64
_FALLBACK_BATCH = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What is compared with one replica of stock Keras.

    Attributes:
        replicas: Numbers of replicas, each a training of its own.
        steps: Steps of each training, in two epochs where there are at least 4.
        batch_size: Samples per global batch; `None` chooses one, or takes that of the data's own
            batches.
        seed: Given to `keras.utils.set_random_seed` before each training.
        synchronize: Make the model with `strategy.build`, which synchronizes batch norms; otherwise
            in `strategy.scope()`.
        stock: Also train under `tf.distribute.MirroredStrategy`.
        scored: Also compare `evaluate` and `predict`, after training.

    Raises:
        UserError: An option is out of range.
    """

    replicas: Sequence[int] = (2, 3)
    steps: int = 6
    batch_size: int | None = None
    seed: int = 0
    synchronize: bool = True
    stock: bool = True
    scored: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.replicas, int):
            object.__setattr__(self, "replicas", (self.replicas,))
        if isinstance(self.replicas, str) or not isinstance(self.replicas, Sequence):
            raise UserError(
                f"replicas has to be numbers such as (2, 3), received {self.replicas!r}"
            )
        if not self.replicas:
            raise UserError("received no numbers of replicas: pass one or several, such as (2, 3)")
        for count in self.replicas:
            _check("replicas", count, 2, MOST_REPLICAS)
        _check("steps", self.steps, LEAST_STEPS, MOST_STEPS)
        _check("seed", self.seed, 0, 2**32 - 1)
        if self.batch_size is not None:
            _check("batch_size", self.batch_size, 2, 2**20)

    @property
    def requested_batch_size(self) -> int:
        """Samples per batch that a function is asked for, which makes the data."""
        return self.batch_size or _FALLBACK_BATCH

    @property
    def epochs(self) -> int:
        """Epochs of a training: two, so that an uneven batch is followed by a full one."""
        return 2 if self.steps >= 4 else 1

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one has fewer samples."""
        return -(-self.steps // self.epochs)


def _check(name: str, value: Any, least: int, most: int) -> None:
    number = as_integer(value)
    if number is None or not least <= number <= most:
        raise UserError(f"{name} has to be an integer from {least} to {most}, received {value!r}")
