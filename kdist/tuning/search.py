"""`Search`: everything that decides a search, as plain data."""

import dataclasses
import importlib.util
from collections.abc import Collection, Mapping
from typing import Any

from ..arguments import as_integer
from ..config import TrainConfig
from ..errors import UserError
from .objective import check_time_budget, find_objective
from .space import DEFAULT_SPACE, SearchSpace

TUNERS = ("random", "bayesian", "hyperband")

#: What may change when a search is resumed; the trials so far stay comparable.
_MAY_CHANGE = ("max_trials", "max_failures", "devices", "port", "output")
_MAY_CHANGE_IN_CONFIG = ("track", "track_batches", "log_model", "profile_batches")

#: The settings that a `build(hp)` of the user leaves to the search.
_HEEDED = (
    *("replicas", "epochs", "batch_size", "lr_rule", "warmup_epochs", "seed"),
    *("target_accuracy", "patience", "time_budget"),
    *_MAY_CHANGE_IN_CONFIG,
)


#: Settings that do nothing in a trial of the WideResNet.
_IDLE = {
    "validate": "but every trial is validated",
    "noise_scale": "which no trial measures",
    "target_train_accuracy": "but trials have the target of --target-accuracy alone",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of one search.

    Attributes:
        model: `"FILE.py:FUNCTION"` with a `build(hp)` of the user, `None` for the WideResNet.
        data: Function of the same file that returns `(x, y), (x_val, y_val)`.
        tuner: `"random"`, `"bayesian"` or `"hyperband"`.
        max_trials: Trials at most; `None` is 10, and with Hyperband as many as its brackets have.
        factor: By which Hyperband reduces trials and raises epochs from round to round.
        objective: `"accuracy"`, `"loss"` or `"seconds_to_target"`.
        executions_per_trial: Runs a trial, with different seeds; their results are averaged.
        max_failures: Failed trials in a row after which the search stops.
        per_trial: Devices a trial; `None` trains one trial at a time on all of `replicas`.
        devices: Devices in all, for `per_trial`; `None` takes every GPU.
        port: Of the chief, for `per_trial`; `None` takes a free one.
        output: Folder of the search.
        space: For the WideResNet: what is tuned, as `SearchSpace` takes it; `None` for the default.
        config: The settings that are not tuned. Of these a `build(hp)` heeds `replicas`, `epochs`,
            `batch_size`, `lr_rule`, `warmup_epochs` (for Hyperband), `seed`, `target_accuracy`,
            `patience`, `time_budget` and the trackers'; another is refused.

    Raises:
        UserError: A value out of its range; the message names the field.
    """

    model: str | None = None
    data: str = "data"
    tuner: str = "random"
    max_trials: int | None = None
    factor: int = 3
    objective: str = "accuracy"
    executions_per_trial: int = 1
    max_failures: int = 5
    per_trial: int | None = None
    devices: int | None = None
    port: int | None = None
    output: str = "runs/tune"
    space: Mapping[str, Any] | None = None
    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.tuner not in TUNERS:
            raise UserError(f"tuner is one of {', '.join(TUNERS)}; received {self.tuner}")
        check_time_budget(find_objective(self.objective).metric, self.config.time_budget)
        if self.tuner == "bayesian":
            _require_bayesian()
        for name, least in (
            ("max_trials", 1),
            ("factor", 2),
            ("executions_per_trial", 1),
            ("max_failures", 1),
            ("per_trial", 1),
            ("devices", 1),
            ("port", 1),
        ):
            value = getattr(self, name)
            if value is not None and (as_integer(value) is None or value < least):
                raise UserError(f"{name} is a whole number of at least {least}, received {value!r}")
        if self.max_trials is None and self.tuner != "hyperband":
            object.__setattr__(self, "max_trials", 10)
        if self.factor != Search.factor and self.tuner != "hyperband":
            raise UserError(
                f"factor={self.factor} is for Hyperband: pass --tuner hyperband, or leave it out"
            )
        if self.data != Search.data and self.model is None:
            raise UserError(
                f"data={self.data} is a function beside a build(hp) of yours: pass"
                " FILE.py:FUNCTION, or leave it out"
            )
        self._check_devices()
        for name in ("run_dir", "log_dir"):
            if getattr(self.config, name) is not None:
                raise UserError(f"received {name}: a search writes below its --output alone")
        if self.model is None:
            if self.tuner == "hyperband" and "epochs" in (self.space or ()):
                raise UserError("epochs cannot be tuned by Hyperband, which grants them itself")
            if self.space is None:
                object.__setattr__(self, "space", DEFAULT_SPACE)
            self.search_space()
            self._check_idle(_IDLE)
        elif self.space is not None:
            raise UserError(
                f"received a search space and {self.model}, whose function declares its own: leave"
                " --space out"
            )
        else:
            unheeded = [name for name in self.config.to_dict() if name not in _HEEDED]
            self._check_idle(dict.fromkeys(unheeded, f"which {self.model} decides itself"))

    def _check_idle(self, reasons: Mapping[str, str]) -> None:
        given, default = self.config.to_dict(), TrainConfig().to_dict()
        idle = [name for name in given if name in reasons and given[name] != default[name]]
        if idle:
            raise UserError(
                f"received {', '.join(idle)}, {reasons[idle[0]]}: leave"
                f" {'it' if len(idle) == 1 else 'them'} out"
            )

    def _check_devices(self) -> None:
        if self.per_trial is None:
            if self.port is not None:
                raise UserError(f"port={self.port} does nothing without --per-trial: leave it out")
            if self.devices is not None:
                raise UserError(
                    f"devices={self.devices} is for several trials at once: pass --per-trial too,"
                    " or --replicas for all devices a trial"
                )
            return
        if self.config.replicas is not None:
            raise UserError(
                f"received replicas={self.config.replicas} and per_trial={self.per_trial}: with"
                " --per-trial N each trial has N replicas; leave --replicas out"
            )
        if self.devices is not None and self.devices < self.per_trial:
            raise UserError(
                f"per_trial={self.per_trial} devices are more than devices={self.devices}: lower"
                " --per-trial"
            )

    @property
    def replicas(self) -> int | None:
        """Replicas of a trial's strategy; `None` for every device."""
        return self.per_trial or self.config.replicas

    def search_space(self) -> SearchSpace:
        """The space of the WideResNet."""
        return SearchSpace(self.space or {}, base=self.config)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "config": self.config.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Search":
        """Read what `to_dict` gave."""
        return cls(**{**values, "config": TrainConfig.from_dict(values["config"])})


def check_given(search: Search, given: Collection[str]) -> None:
    """Refuse settings of the command line that the search space tunes.

    Args:
        search: The settings.
        given: Names of those that were given. `batch_size` is the one that rates are drawn for.

    Raises:
        UserError: One would do nothing.
    """
    tuned = [name for name in search.space or () if name in given and name != "batch_size"]
    if tuned:
        raise UserError(
            f"received {', '.join(tuned)}, which the search space tunes: leave"
            f" {'it' if len(tuned) == 1 else 'them'} out, or pass a --space without"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two searches, as `to_dict` gives them, differ in so that they are not one.

    Returns:
        A line each, such as `"config.depth was 10, is 16"`.
    """
    found = []
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


def _require_bayesian() -> None:
    missing = [name for name in ("scipy", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"tuner=bayesian needs {' and '.join(missing)}: pip install 'kdist[tune]', or choose"
            " --tuner random"
        )
