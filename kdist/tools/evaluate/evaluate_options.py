"""`EvaluateOptions`: the options of `kdist evaluate`, checked without NumPy."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ...fields import check_fields
from ...training.config import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Evaluation.

    Attributes:
        replicas: Number of replicas; by default every GPU, or the CPU if there is none.
        val_batch_size: Samples per step and replica; by default the run's.
        averaged: Evaluate the averaged weights of checkpoints.
        watch: Seconds between two searches for new checkpoints; evaluate each checkpoint, and end
            with the run. By default, evaluate the newest model.

    Raises:
        UserError: An option is out of range.
    """

    replicas: Annotated[int, Ge(1)] | None = None
    val_batch_size: Annotated[int, Ge(1)] | None = None
    averaged: bool = False
    watch: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def make_config(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return a run's settings with the batch size and devices of these options."""
        given = {} if self.val_batch_size is None else {"val_batch_size": self.val_batch_size}
        # The shards that the run was trained with need not be a multiple of the number of replicas.
        devices = {"replicas": self.replicas, "shards": None}
        undivided = {"shard_optimizer": False, "shard_weights": False}
        return TrainConfig.from_dict({**settings, "run_dir": None, **devices, **undivided, **given})
