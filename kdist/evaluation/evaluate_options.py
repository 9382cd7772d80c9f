"""`EvaluateOptions`: on what and how `kdist evaluate` evaluates, checked."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ..data.datasets import DatasetName
from ..errors import UserError
from ..fields import Folder, check_fields
from ..training.config import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Evaluation.

    Attributes:
        dataset: Data set; by default that of the run.
        data_dir: Folder of the data set; by default that of the run.
        data: For a run of your own model, the function that returns your validation data:
            `FILE.py:FUNCTION`, or the name of a function in the model's file. By default that of
            the run.
        replicas: Number of replicas; by default every GPU, or the CPU if there is none.
        val_batch_size: Images per step and replica; by default the run's.
        averaged: Evaluate the averaged weights.
        watch: Look for new checkpoints every this many seconds, evaluate each, and end with the
            run; by default, evaluate once.

    Raises:
        UserError: One of them is invalid.
    """

    dataset: DatasetName | None = None
    data_dir: Folder | None = None
    data: str | None = None
    replicas: Annotated[int, Ge(1)] | None = None
    val_batch_size: Annotated[int, Ge(1)] | None = None
    averaged: bool = False
    watch: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.data is not None and (self.dataset, self.data_dir) != (None, None):
            raise UserError(
                f"received --data {self.data}, which is a function of yours, and a data set of"
                " kdist: remove --dataset and --data-dir, or --data"
            )
        self.config({})  # refuses a wrong value before anything is read

    def config(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return a run's settings, with the data and devices that were asked for.

        Args:
            settings: Of the run; empty for a model that is not of a run.

        Raises:
            UserError: They are no settings of a run, or contradict each other.
        """
        changes = {
            name: value
            for name, value in vars(self).items()
            if name in ("dataset", "data_dir", "val_batch_size") and value is not None
        }
        if self.data is not None and settings.get("model") is not None:
            changes["data"] = self.data
        # On any number of replicas: they need not divide the shards that it was trained in.
        own = {**settings, "run_dir": None, "replicas": self.replicas}
        own |= {"shards": None, "shard_optimizer": False}
        if self.dataset is not None and self.dataset != settings.get("dataset"):
            own |= {"data_dir": None, "subset": None}  # which are those of another data set
        return TrainConfig.from_dict({**own, **changes})
