"""`EvaluateOptions`: on what and how `kdist evaluate` evaluates, checked."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from ..arguments import positive_number
from ..data.datasets import DatasetName
from ..errors import UserError
from ..training.config import TrainConfig

Views = Literal["none", "mirror", "mirror-shift"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """How saved models are evaluated, and on which data.

    Attributes:
        dataset: Data set; by default that of the run.
        data_dir: Its folder, if it has one; by default that of the run.
        data: Function that returns your validation data, `"FILE.py:FUNCTION"`; for a run of your
            own model, also the name of a function in its file. By default that of the run.
        replicas: Number of replicas; by default every GPU, or the CPU if there is none.
        val_batch_size: Images per step and replica; by default the run's.
        averaged: Whether to use the averages of the weights.
        views: `"mirror"` averages the predictions for each image and its mirror image;
            `"mirror-shift"` also those for both shifted by a pixel, to the top left and to the
            bottom right, each with half the weight of the unshifted.
        watch: Seconds between checks for new checkpoints; `None` to check once.

    Raises:
        UserError: One of them is invalid.
    """

    dataset: DatasetName | None = None
    data_dir: str | None = None
    data: str | None = None
    replicas: int | None = None
    val_batch_size: int | None = None
    averaged: bool = False
    views: Views = "none"
    watch: float | None = None

    def __post_init__(self) -> None:
        if self.views not in get_args(Views):
            known = ", ".join(get_args(Views))
            raise UserError(f"views is {self.views!r}, but has to be one of {known}")
        if self.watch is not None:
            hint = "pass the seconds between two looks for new checkpoints, such as 300"
            positive_number("watch", self.watch, hint=hint)
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
        own = {**settings, "run_dir": None, "replicas": self.replicas}
        if self.dataset is not None and self.dataset != settings.get("dataset"):
            own |= {"data_dir": None, "subset": None}  # which are those of another data set
        return TrainConfig.from_dict({**own, **changes})
