"""`Search`: all settings of a hyperparameter search."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..fields import Folder, UnusedInTrials, check_fields, field_names, marked
from ..launch.launch_options import MOST_WORKERS
from ..training.config import TrainConfig
from ..training.networks import without_unused
from ..training.settings import FOLDERS, Count, Output, Stopping
from ..versions import require
from .folder import About, StudyFolder
from .search_space import DEFAULT_SPACE, SearchSpace

#: Whether larger or smaller values of an objective are better.
DIRECTIONS = {"val_accuracy": "max", "val_loss": "min", "seconds_to_target": "min"}

#: Short names of objectives, which are those of validation.
_SHORT = {"accuracy": "val_accuracy", "loss": "val_loss"}


def check_time_budget(objective: str, time_budget: float | None) -> None:
    """Reject the objective `seconds_to_target` without a time budget.

    Raises:
        UserError: There is no time budget.
    """
    if objective == "seconds_to_target" and time_budget is None:
        raise UserError(
            f"the objective {objective} needs a time budget, received none: pass --time-budget, the"
            " maximum seconds per trial; a trial that misses the target scores ten times that"
        )


KIND = "search"
"""Of the study in `study.json`."""

_MAY_CHANGE_IN_CONFIG = field_names(Output) - FOLDERS

MAY_CHANGE = {"max_trials", "max_failures", "workers", "output"} | {
    f"config.{name}" for name in _MAY_CHANGE_IN_CONFIG
}
"""What may change when a search is resumed; the trials so far stay comparable."""

#: Settings that do nothing in a trial of a built-in network.
UNUSED = {name: f"but {mark.why}" for name, mark in marked(TrainConfig, UnusedInTrials).items()}

#: The settings that a search uses with the user's own `build(hp)`.
_OF_ANY_MODEL = (
    {"replicas", "batch_size", "lr_rule", "warmup_epochs", "seed"}
    | (field_names(Stopping) - {*UNUSED})
    | _MAY_CHANGE_IN_CONFIG
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Search.

    Attributes:
        model: `"FILE.py:FUNCTION"` with your own `build(hp)`; `None` for the built-in network.
        data: Function in the model's file, or FILE.py:FUNCTION, that returns (x, y),
            (x_val, y_val), or two tf.data.Dataset or PyDataset; it may take `batch_size`, the
            global batch size.
        tuner: Search algorithm.
        max_trials: Maximum number of trials; by default 10, or with Hyperband all its brackets.
        factor: Factor by which Hyperband reduces trials and raises epochs from round to round.
        objective: What to optimize: val_accuracy, val_loss or seconds_to_target.
        executions_per_trial: Runs per trial, with different seeds; their results are averaged.
        max_failures: Stop after this many failed trials in a row.
        workers: Trials at once, each in a process on its share of the GPUs or cores; by default
            one trial after the other, on all devices.
        output: Folder of the search; a search that was started there is resumed.
        space: For a built-in network: what to tune, as `SearchSpace` takes it; `None` for the
            default.
        config: The settings that are not tuned. With your own `build(hp)` only `replicas`,
            `epochs`, `batch_size`, `lr_rule`, `warmup_epochs` (for Hyperband), `seed`,
            `target_accuracy`, `patience`, `time_budget` and those of trackers are used; any other
            raises an error.

    Raises:
        UserError: A value is out of range; the message names the field.

    Example:
        >>> search = Search(max_trials=20, config=TrainConfig(epochs=4, replicas=2))
        >>> search.tuner, search.config.replicas
        ('random', 2)
    """

    model: str | None = None
    data: str = "data"
    tuner: Literal["random", "bayesian", "hyperband"] = "random"
    max_trials: Count | None = None
    factor: Annotated[int, Ge(2), Le(100)] = 3
    objective: str = "val_accuracy"
    executions_per_trial: Count = 1
    max_failures: Count = 5
    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = None
    output: Folder = "runs/tune"
    space: Mapping[str, Any] | None = None
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "objective", _SHORT.get(self.objective, self.objective))
        if self.objective not in DIRECTIONS:
            raise UserError(
                f"objective has to be one of {', '.join(DIRECTIONS)}; received {self.objective}"
            )
        check_time_budget(self.objective, self.config.time_budget)
        if self.tuner == "bayesian":
            require("tune")
        if self.max_trials is None and self.tuner != "hyperband":
            object.__setattr__(self, "max_trials", 10)
        if self.factor != Search.factor and self.tuner != "hyperband":
            raise UserError(
                f"factor={self.factor} is for Hyperband: pass --tuner hyperband, or remove it"
            )
        if self.data != Search.data and self.model is None:
            raise UserError(
                f"data={self.data} needs your own build(hp): pass FILE.py:FUNCTION, or remove it"
            )
        if self.config.model is not None:
            raise UserError(
                f"received model={self.config.model} among the settings of the trials: pass it as"
                " kdist tune FILE.py:FUNCTION"
            )
        for name in ("run_dir", "log_dir"):
            if getattr(self.config, name) is not None:
                raise UserError(f"received {name}: a search writes only into its --output")
        if self.model is None:
            if self.tuner == "hyperband" and "epochs" in (self.space or ()):
                raise UserError("epochs cannot be tuned by Hyperband, which sets them itself")
            if self.space is None:
                names = without_unused([*DEFAULT_SPACE], self.config.network)
                object.__setattr__(self, "space", {name: DEFAULT_SPACE[name] for name in names})
            self.search_space()
            self._check_unused(UNUSED)
        elif self.space is not None:
            raise UserError(
                f"received a search space and {self.model}, whose function declares its own: remove"
                " --space"
            )
        else:
            ignored = self.config.to_dict().keys() - _OF_ANY_MODEL
            self._check_unused(dict.fromkeys(ignored, f"which {self.model} decides itself"))

    def _check_unused(self, reasons: Mapping[str, str]) -> None:
        given, default = self.config.to_dict(), TrainConfig().to_dict()
        unused = [name for name in given if name in reasons and given[name] != default[name]]
        if unused:
            raise UserError(
                f"received {', '.join(unused)}, {reasons[unused[0]]}: remove"
                f" {'it' if len(unused) == 1 else 'them'}"
            )

    @property
    def direction(self) -> str:
        """`"max"` if larger values of the objective are better, else `"min"`."""
        return DIRECTIONS[self.objective]

    def search_space(self) -> SearchSpace:
        """Return the search space of the built-in network."""
        return SearchSpace(self.space or {}, base=self.config)

    @property
    def about(self) -> About:
        """What the study is."""
        return About(kind=KIND, settings=self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "config": self.config.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Search":
        """Make a search from the result of `to_dict`."""
        return cls(**{**values, "config": TrainConfig.from_dict(values["config"])})


def check_given(search: Search, given: Collection[str]) -> None:
    """Reject command-line settings that the search space tunes.

    `batch_size` is allowed: it is the batch size that learning rates are drawn for.

    Raises:
        UserError: A setting would have no effect.
    """
    tuned = [name for name in search.space or () if name in given and name != "batch_size"]
    if tuned:
        them = "it" if len(tuned) == 1 else "them"
        raise UserError(
            f"received {', '.join(tuned)}, which the search space tunes: remove {them}, or pass a"
            f" --space without {them}"
        )


def read_search(folder: StudyFolder) -> Search:
    """Read the settings of the search in a folder.

    Raises:
        UserError: There is none, or it is of another version of kdist.
    """
    about = folder.about()
    if about is None or about.kind != KIND:
        raise UserError(f"there is no search in {folder.path}: pass the --output of kdist tune")
    return Search.from_dict(about.settings)
