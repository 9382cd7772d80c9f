"""`CheckOptions`: the arguments of a check, checked without TensorFlow."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge, Le

from ...fields import check_fields

# Tracing for more replicas takes minutes.
_MOST_REPLICAS = 64
_LEAST_BATCH, _MOST_BATCH = 8, 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Check.

    The first line is the title of the options' group in the help text.

    Attributes:
        replicas: Numbers of replicas, on logical CPUs if there are too few GPUs; with `--devices`
            all GPUs.
        steps: Training steps of each run, in two epochs if there are at least 4.
        batch_size: Samples per global batch of arrays; chosen by default.
        seed: Seed of all training runs.
        bits: Use the same number of shards for every run, also on one replica, and require
            identical bits.
        shard_weights: Divide the weights over the replicas, as `kdist.MirroredStrategy` does.

    Raises:
        UserError: An option is out of range.
    """

    replicas: Sequence[Annotated[int, Ge(2), Le(_MOST_REPLICAS)]] = (2, 3)
    steps: Annotated[int, Ge(2), Le(1000)] = 6
    batch_size: Annotated[int, Ge(2), Le(2**20)] | None = None
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 0
    bits: bool = False
    shard_weights: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def shards(self) -> int | None:
        """Number of parts of each batch if all replicas have to give the same bits; else `None`."""
        return math.lcm(*self.replicas) if self.bits else None

    @property
    def epochs(self) -> int:
        """Epochs of a run; with two epochs, a full batch follows an uneven batch."""
        return 2 if self.steps >= 4 else 1

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last step has fewer samples."""
        return -(-self.steps // self.epochs)

    @property
    def full_batch(self) -> int:
        """Samples per batch of arrays; by default few, a multiple of all `replicas` if possible."""
        if self.batch_size is not None:
            return self.batch_size
        common = math.lcm(*self.replicas)
        step = common if common <= _MOST_BATCH else max(self.replicas)
        return step * -(-_LEAST_BATCH // step)
