"""`CheckOptions`: the arguments of a check, checked without TensorFlow."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ..arguments import as_integer
from ..errors import UserError

# More logical CPUs than this take minutes to trace.
_MOST_REPLICAS = 64
_LEAST_BATCH, _MOST_BATCH = 8, 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What is compared with one replica of stock Keras.

    Attributes:
        replicas: Numbers of replicas, each a training run of its own.
        steps: Steps of each run, in two epochs where there are at least 4.
        batch_size: Samples per global batch of arrays; `None` chooses one.
        seed: Given to `keras.utils.set_random_seed` before each run.

    Raises:
        UserError: An option is out of range.
    """

    replicas: Sequence[int] = (2, 3)
    steps: int = 6
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        replicas = self.replicas
        if isinstance(replicas, str) or not isinstance(replicas, Sequence) or not replicas:
            raise UserError(f"replicas has to be numbers such as (2, 3), received {replicas!r}")
        for count in replicas:
            _check("replicas", count, 2, _MOST_REPLICAS)
        _check("steps", self.steps, 2, 1000)
        _check("seed", self.seed, 0, 2**32 - 1)
        if self.batch_size is not None:
            _check("batch_size", self.batch_size, 2, 2**20)

    @property
    def epochs(self) -> int:
        """Epochs of a run: two, so that an uneven batch is followed by a full one."""
        return 2 if self.steps >= 4 else 1

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one has fewer samples."""
        return -(-self.steps // self.epochs)

    @property
    def full_batch(self) -> int:
        """Samples per batch of arrays: if not chosen, few that all numbers of replicas divide."""
        if self.batch_size is not None:
            return self.batch_size
        common = math.lcm(*self.replicas)
        step = common if common <= _MOST_BATCH else max(self.replicas)
        return step * -(-_LEAST_BATCH // step)


def _check(name: str, value: Any, least: int, most: int) -> None:
    number = as_integer(value)
    if number is None or not least <= number <= most:
        raise UserError(f"{name} has to be an integer from {least} to {most}, received {value!r}")
