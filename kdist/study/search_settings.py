"""`Search`: all settings of `kdist tune`."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..fields import Folder, check_fields, field_names
from ..training.config import TrainConfig
from ..training.settings import FOLDERS, Count, Output
from ..versions import require_extra
from ..workers.launch_options import MOST_WORKERS
from .search_space import DEFAULT_SPACE, SearchSpace
from .study_folder import StudyInfo

DIRECTIONS = {"val_accuracy": "max", "val_loss": "min", "seconds_to_target": "min"}
"""For each objective, whether larger or smaller values are better."""

SEARCH_KIND = "search"
"""The kind of a search in `study.json`."""

MAY_CHANGE = {"max_trials", "max_failures", "workers", "output"} | {
    f"config.{name}" for name in field_names(Output) - FOLDERS
}
"""Settings that may change when a search is resumed; its earlier trials stay comparable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Search.

    The first line is the title of the options' group in the help text.

    Attributes:
        tuner: Search algorithm.
        max_trials: Maximum number of trials; by default 10, or with Hyperband all its brackets.
        factor: Factor by which Hyperband reduces trials and raises epochs from round to round.
        objective: The value to optimize.
        max_failures: Stop after this many failed trials in a row.
        workers: Trials at the same time, each on its share of the GPUs or cores; by default a
            single trial on all devices.
        output: Folder of the search; a search that was started there is resumed.
        space: The settings to tune, as `SearchSpace` takes them; by default
            `DEFAULT_SPACE`.
        config: The settings that are not tuned.

    Raises:
        UserError: A value is out of range; the message names the field.

    Examples:
        >>> search = Search(max_trials=20, config=TrainConfig(epochs=4, replicas=2))
        >>> search.tuner, search.config.replicas
        ('random', 2)
    """

    tuner: Literal["random", "bayesian", "hyperband"] = "random"
    max_trials: Count | None = None
    factor: Annotated[int, Ge(2), Le(100)] = 3
    objective: Literal["val_accuracy", "val_loss", "seconds_to_target"] = "val_accuracy"
    max_failures: Count = 5
    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = None
    output: Folder = "runs/tune"
    space: Mapping[str, Any] | None = None
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.objective == "seconds_to_target" and self.config.time_budget is None:
            raise UserError(
                "the objective seconds_to_target needs a time budget, received none: pass"
                " --time-budget, the maximum seconds per trial; a trial that misses the target"
                " scores at least ten times the budget"
            )
        if self.tuner == "bayesian":
            require_extra("tune")
        if self.max_trials is None and self.tuner != "hyperband":
            object.__setattr__(self, "max_trials", 10)
        if self.config.model is not None:
            raise UserError(
                f"received model={self.config.model}, but kdist tune is for kdist's networks: tune"
                " your own model with KerasTuner and"
                " distribution_strategy=kdist.MirroredStrategy()"
            )
        for name, fixed in {"run_dir": None, "log_dir": None, "validate": True}.items():
            if getattr(self.config, name) != fixed:
                raise UserError(f"received {name}, which a search sets itself: leave it out")
        if self.tuner == "hyperband" and "epochs" in (self.space or ()):
            raise UserError(
                "received a search space with epochs, which Hyperband sets itself: remove epochs"
                " from the space"
            )
        if self.space is None:
            object.__setattr__(self, "space", dict(DEFAULT_SPACE))
        longest, searched = self.config.warmup_epochs, self.search_space()
        if "warmup_epochs" in searched.ranges:
            longest = max(searched.values_to_check("warmup_epochs"))
        if self.tuner == "hyperband" and longest >= 1:
            raise UserError(
                f"received warmup_epochs {longest:g} with hyperband, whose first trials end after"
                " one epoch, before the learning rate has risen: keep warmup_epochs below 1, or"
                " pass another --tuner"
            )

    @property
    def direction(self) -> str:
        """`"max"` if larger values of the objective are better, else `"min"`."""
        return DIRECTIONS[self.objective]

    def search_space(self) -> SearchSpace:
        """Return the search space."""
        return SearchSpace(self.space or {}, base=self.config)

    @property
    def info(self) -> StudyInfo:
        """The contents of `study.json`."""
        return StudyInfo(kind=SEARCH_KIND, settings=dataclasses.asdict(self))

    @classmethod
    def from_info(cls, info: StudyInfo) -> "Search":
        """Make a search from the contents of its `study.json`."""
        config = TrainConfig.from_dict(info.settings["config"])
        return cls(**{**info.settings, "config": config})


def refuse_tuned(search: Search, given_names: Collection[str]) -> None:
    """Reject command-line settings that the search space tunes.

    `batch_size` may be passed although it is tuned: learning rates are drawn for this batch size.

    Raises:
        UserError: A setting would have no effect.
    """
    tuned = [name for name in search.space or () if name in given_names and name != "batch_size"]
    if tuned:
        names = ", ".join(tuned)
        raise UserError(
            f"received {names}, which the search space tunes: leave out the options, or pass a"
            f" --space without {names}"
        )
