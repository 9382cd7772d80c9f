"""`Search`: all settings of a hyperparameter search, as plain data."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..training.config import TrainConfig
from ..training.fields import Folder, IdleInTrials, check_fields, field_names, marked
from ..training.settings import FOLDERS, Count, Output, Replicas, Stopping, without_idle
from ..versions import require
from .objective import check_time_budget, find_objective, full_name
from .space import DEFAULT_SPACE, SearchSpace

#: What may change when a search is resumed; the trials so far stay comparable.
_MAY_CHANGE = ("max_trials", "max_failures", "devices", "port", "output")
_MAY_CHANGE_IN_CONFIG = field_names(Output) - FOLDERS

#: Settings that do nothing in a trial of a built-in network.
IDLE = {name: f"but {mark.why}" for name, mark in marked(TrainConfig, IdleInTrials).items()}

#: The settings that a search uses with the user's own `build(hp)`.
_OF_ANY_MODEL = (
    {"replicas", "batch_size", "lr_rule", "warmup_epochs", "seed"}
    | (field_names(Stopping) - {*IDLE})
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
        per_trial: Devices per trial, to run several trials at once; by default each trial runs
            alone, on all devices.
        devices: Total number of devices, with --per-trial; by default every GPU. Without a GPU the
            CPU is split.
        port: Port of the chief, with --per-trial; a free one by default.
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
        >>> search.tuner, search.replicas
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
    per_trial: Replicas | None = None
    devices: Replicas | None = None
    port: Annotated[int, Ge(1), Le(65_535)] | None = None
    output: Folder = "runs/tune"
    space: Mapping[str, Any] | None = None
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "objective", full_name(self.objective))
        check_time_budget(find_objective(self.objective).metric, self.config.time_budget)
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
        self._check_devices()
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
                names = without_idle([*DEFAULT_SPACE], self.config.network)
                object.__setattr__(self, "space", {name: DEFAULT_SPACE[name] for name in names})
            self.search_space()
            self._check_idle(IDLE)
        elif self.space is not None:
            raise UserError(
                f"received a search space and {self.model}, whose function declares its own: remove"
                " --space"
            )
        else:
            ignored = self.config.to_dict().keys() - _OF_ANY_MODEL
            self._check_idle(dict.fromkeys(ignored, f"which {self.model} decides itself"))

    def _check_idle(self, reasons: Mapping[str, str]) -> None:
        given, default = self.config.to_dict(), TrainConfig().to_dict()
        idle = [name for name in given if name in reasons and given[name] != default[name]]
        if idle:
            raise UserError(
                f"received {', '.join(idle)}, {reasons[idle[0]]}: remove"
                f" {'it' if len(idle) == 1 else 'them'}"
            )

    def _check_devices(self) -> None:
        if self.per_trial is None:
            if self.port is not None:
                raise UserError(f"port={self.port} does nothing without --per-trial: remove it")
            if self.devices is not None:
                raise UserError(
                    f"devices={self.devices} is for several trials at once: pass --per-trial too,"
                    " or use --replicas to set the devices of each trial"
                )
            return
        if self.config.replicas is not None:
            raise UserError(
                f"received replicas={self.config.replicas} and per_trial={self.per_trial}: with"
                " --per-trial N each trial has N replicas; remove --replicas"
            )
        if self.devices is not None and self.devices < self.per_trial:
            raise UserError(
                f"per_trial={self.per_trial} is more than devices={self.devices}: lower --per-trial"
            )

    @property
    def replicas(self) -> int | None:
        """Number of replicas of a trial; `None` for all devices."""
        return self.per_trial or self.config.replicas

    def search_space(self) -> SearchSpace:
        """Return the search space of the built-in network."""
        return SearchSpace(self.space or {}, base=self.config)

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

    Args:
        search: The settings.
        given: Names of the settings given. `batch_size` is allowed: it is the batch size that
            learning rates are drawn for.

    Raises:
        UserError: A setting would have no effect.
    """
    tuned = [name for name in search.space or () if name in given and name != "batch_size"]
    if tuned:
        raise UserError(
            f"received {', '.join(tuned)}, which the search space tunes: remove"
            f" {'it' if len(tuned) == 1 else 'them'}, or pass a --space without"
            f" {'it' if len(tuned) == 1 else 'them'}"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare two searches (results of `to_dict`), ignoring what may change on resumption.

    Returns:
        One line per difference, such as `"config.depth was 10, is 16"`.
    """
    found = []
    before = {**before, "objective": full_name(before.get("objective", ""))}
    for name in sorted({*before, *now} - set(_MAY_CHANGE)):
        was, is_now = before.get(name), now.get(name)
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            found += [
                f"{name}.{key} was {was.get(key)}, is {is_now.get(key)}"
                for key in sorted({*was, *is_now})
                if was.get(key) != is_now.get(key) and key not in _MAY_CHANGE_IN_CONFIG
            ]
        elif was != is_now:
            found.append(f"{name} was {was}, is {is_now}")
    return found
