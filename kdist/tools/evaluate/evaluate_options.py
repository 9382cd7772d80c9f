"""`EvaluateOptions`: the options of `kdist evaluate`, checked without NumPy."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ...fields import Folder, check_fields
from ...training.config import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Evaluation.

    Attributes:
        data_dir: Folder of the data set; by default the run's.
        replicas: Number of replicas; by default every GPU, or the CPU if there is none.
        val_batch_size: Samples per step and replica; by default the run's.
        averaged: Evaluate the averaged weights of checkpoints.
        watch: Seconds between two searches for new checkpoints; evaluate each checkpoint, and end
            with the run. By default, evaluate the newest model.

    Raises:
        UserError: An option is out of range.
    """

    data_dir: Folder | None = None
    replicas: Annotated[int, Ge(1)] | None = None
    val_batch_size: Annotated[int, Ge(1)] | None = None
    averaged: bool = False
    watch: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def make_config(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return a run's settings with the data folder, batch size and devices of these options."""
        replaced = {"data_dir": self.data_dir, "val_batch_size": self.val_batch_size}
        given = {name: value for name, value in replaced.items() if value is not None}
        # The shards that the run was trained with need not be a multiple of the number of replicas.
        devices = {"replicas": self.replicas, "shards": None}
        undivided = {"shard_optimizer": False, "shard_weights": False}
        return TrainConfig.from_dict({**settings, "run_dir": None, **devices, **undivided, **given})
