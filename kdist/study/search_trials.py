"""Results of a search, read from its folder without TensorFlow: its table, chart and files."""

import csv
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..charts.tables import MISSING, ResultsTable, setting
from ..errors import UserError
from ..fields import field_names
from ..files import atomic_write, parse_json, read_text
from ..optimizers.scaling import scale_learning_rate
from ..training.config import TrainConfig
from ..training.networks import NETWORKS, SIZES
from ..training.settings import Output, model_name
from .console import rich_table
from .folder import StudyFolder
from .search_settings import Search

if TYPE_CHECKING:
    from ..charts.figures import Figure


def trial_config(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a trial, with which `kdist train` can repeat it.

    Learning rates are drawn for one replica with the `batch_size` of `base`. They are scaled to the
    trial's own batch size by `lr_rule`, so that rate and batch size can be drawn independently: a
    rate that suits a batch of 32 is not tried unchanged with 256. The run itself scales the rate to
    the number of replicas.

    Args:
        base: The settings that are not tuned. Learning rates are drawn for its `batch_size`.
        values: Settings of the trial, from `SearchSpace.decode`.

    Raises:
        UserError: Settings are incompatible, such as Adam with a momentum.

    Example:
        >>> trial_config(TrainConfig(), {"base_lr": 0.01, "batch_size": 64}).base_lr
        0.02
    """
    config = TrainConfig.from_dict({**base.to_dict(), **values})
    rate = scale_learning_rate(
        config.base_lr,
        global_batch=config.batch_size,
        reference_batch=base.batch_size,
        rule=config.lr_rule,
        optimizer=config.optimizer,
    )
    return TrainConfig.from_dict({**config.to_dict(), "base_lr": rate})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        trial_id: KerasTuner's name of the trial.
        status: `"COMPLETED"`, `"FAILED"`, or KerasTuner's status of an unfinished trial.
        score: The value of the objective; `None` unless completed.
        values: Its hyperparameters; for a built-in network as settings. Those that Hyperband adds
            begin with `tuner/`.
        metrics: Means over the executions: the objective, `seconds`, `epochs`, …
        failure: Why it failed, in one line.
        sampling: How each hyperparameter with a range was sampled: `"linear"`, `"log"`, …
    """

    trial_id: str
    status: str
    score: float | None
    values: dict[str, Any]
    metrics: dict[str, float]
    failure: str = ""
    sampling: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether every execution reached the target; true if there is none."""
        return self.metrics.get("reached", 1.0) >= 1.0


def read_trials(
    folder: StudyFolder, search: Search, *, order: str = "start_order"
) -> list[TrialResult]:
    """Read the trials of a search so far, in the order in which they started.

    Args:
        folder: The folder of the search.
        search: Its settings.
        order: `"end_order"` for the finished trials only, in the order in which they ended.

    Raises:
        UserError: A file of KerasTuner's is damaged.
    """
    oracle = folder.read("trials/oracle.json") or {order: []}
    try:
        trials = [folder.trials / f"trial_{trial_id}" for trial_id in oracle[order]]
        return [_read_trial(trial, search) for trial in trials]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"the trials in {folder.trials} are damaged ({type(error).__name__}: {error}): pass"
            " another --output"
        ) from error


def _read_trial(folder: Path, search: Search) -> TrialResult:
    state = parse_json(read_text(folder / "trial.json"))
    space = state["hyperparameters"].get("space", [])
    names = [part["config"]["name"] for part in space]
    values = in_order(state["hyperparameters"]["values"], names)
    if search.model is None:
        added = {name: value for name, value in values.items() if name.startswith("tuner/")}
        values = {**search.search_space().decode(values), **added}
    file, failure = folder / "failure.txt", ""
    if state["status"] == "FAILED":
        text = file.read_text(encoding="utf-8") if file.exists() else "no reason given"
        failure = text.splitlines()[0]
    return TrialResult(
        trial_id=state["trial_id"],
        status=state["status"],
        score=state["score"] if state["status"] == "COMPLETED" else None,
        values=values,
        metrics={
            name: metric["observations"][-1]["value"][-1]
            for name, metric in state["metrics"]["metrics"].items()
        },
        failure=failure,
        sampling={
            part["config"]["name"]: part["config"]["sampling"]
            for part in space
            if part["config"].get("sampling")
        },
    )


def best_first(trials: Sequence[TrialResult], search: Search) -> list[TrialResult]:
    """Sort the completed trials, best first; those that missed the target come last."""
    sign = -1 if search.direction == "max" else 1
    scored = [(not one.reached, sign * one.score, one) for one in trials if one.score is not None]
    return [trial for *_, trial in sorted(scored, key=lambda one: one[:2])]


def best_settings(search: Search, trials: list[TrialResult]) -> dict[str, Any] | None:
    """Return the best trial's settings, for `kdist train --config`; `None` if none was completed.

    They have as many replicas as the trial; none are named if it had all devices of its machine.
    For the user's own `build(hp)` it returns the hyperparameters.
    """
    ranked = best_first(trials, search)
    if not ranked:
        return None
    values = hyperparameters(ranked[0].values)
    if search.model is not None:
        return values
    settings = trial_config(search.config, values).to_dict()
    # How the search was tracked and where it ran are not settings of the best run.
    return {name: value for name, value in settings.items() if name not in field_names(Output)}


def hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a trial without those that Hyperband adds."""
    return {name: value for name, value in values.items() if not name.startswith("tuner/")}


def in_order(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return values by name, in the order of `names`; the others follow."""
    known = [name for name in names if name in values]
    return {name: values[name] for name in dict.fromkeys([*known, *values])}


def describe(values: Mapping[str, Any]) -> str:
    """Format the hyperparameters of a trial in one line."""
    shown = hyperparameters(values)
    if values.get("tuner/epochs"):
        shown["epochs"] = f"{values['tuner/initial_epoch'] + 1} to {values['tuner/epochs']}"
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in shown.items()
    )


def trials_table(trials: Sequence[TrialResult], search: Search) -> ResultsTable:
    """Make a table of trials, best first: their scores, what was measured, hyperparameters."""
    names = tuned_names(trials)
    measured = [
        name
        for name in ("val_accuracy", "seconds", "epochs")
        if name != search.objective and any(name in trial.metrics for trial in trials)
    ]
    ordered = best_first(trials, search) + [trial for trial in trials if trial.score is None]
    note = f"Best first, by {search.objective}; then the hyperparameters."
    if search.executions_per_trial > 1:
        note += f" Means over {search.executions_per_trial} runs per trial."
    if search.model is None:
        note += " Learning rates are those for one replica and the batch of the search."
    return ResultsTable(
        title="Trials",
        columns=["Trial", search.objective, *measured, *names],
        rows=[
            [
                trial.trial_id,
                trial.status.lower()
                if trial.score is None
                else _short(trial.score) + ("" if trial.reached else ", missed the target"),
                *(_short(trial.metrics.get(name)) for name in measured),
                *(
                    _short(trial.values[name]) if name in trial.values else MISSING
                    for name in names
                ),
            ]
            for trial in ordered
        ],
        note=note,
    )


def tuned_names(trials: Sequence[TrialResult]) -> list[str]:
    """Return the names of the trials' hyperparameters, in order: the last columns of the table."""
    return list(dict.fromkeys(name for trial in trials for name in hyperparameters(trial.values)))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else setting(value)


def trials_figure(trials: Sequence[TrialResult], search: Search) -> "Figure":
    """Draw the trials that ended, in order and against each hyperparameter that varied."""
    from ..charts.figures import search_figure

    def outcome(trial: TrialResult) -> str:
        if trial.score is None:
            return "failed"
        return "trial" if trial.reached else "missed the target"

    numbers = list(range(1, len(trials) + 1))
    if all(trial.trial_id.isdigit() for trial in trials):  # as KerasTuner names them
        numbers = [int(trial.trial_id) for trial in trials]
    rows: list[dict[str, Any]] = [
        {"trial": number, "outcome": outcome(trial), "score": trial.score}
        | {"values": hyperparameters(trial.values)}
        for number, trial in zip(numbers, trials, strict=True)
        if trial.score is not None or trial.status == "FAILED"
    ]
    sampling = {name: way for trial in trials for name, way in trial.sampling.items()}
    return search_figure(
        search.objective,
        rows,
        better=max if search.direction == "max" else min,
        log=[name for name, way in sampling.items() if way in ("log", "reverse_log")],
    )


def searched_model(search: Search) -> str:
    """Name the model of a search: the user's function, or the network."""
    if search.model is not None:
        return search.model
    if SIZES & set(search.space or ()):
        return NETWORKS[search.config.network].title
    return model_name(search.config.to_dict())


def report(
    search: Search, folder: StudyFolder, *, announce: Callable[[str], None]
) -> list[TrialResult]:
    """Write `trials.csv`, `trials.png` and `best.json`, announce the results, and return them."""
    trials = read_trials(folder, search)
    atomic_write(folder.path / "trials.csv", _trials_csv(trials))
    announce(_as_text(trials, search))
    for trial in trials:
        if trial.status == "FAILED":
            announce(f"Trial {trial.trial_id} failed: {trial.failure}")
    settings = best_settings(search, trials)
    if settings is None:
        announce("No trial was completed.")
        return trials
    figure = trials_figure(trials, search)
    atomic_write(folder.path / f"{figure.id}.png", figure.png(of=searched_model(search)))
    best = best_first(trials, search)[0]
    folder.write("best.json", settings)
    announce(f"Best trial: {best.trial_id}, {search.objective} {best.score:.4g}")
    if not best.reached:
        announce(
            f"No trial beat the target accuracy of {search.config.target_accuracy:g}; such trials"
            " score at least ten times the time budget."
        )
    path = folder.path / "best.json"
    announce(
        f"Best settings: kdist train --config {path}"
        if search.model is None
        else f"Best hyperparameters: {path}"
    )
    return trials


def _trials_csv(trials: Sequence[TrialResult]) -> str:
    """Format the trials as CSV: name, status, score, hyperparameters, metrics, failure."""
    names = _columns([trial.values for trial in trials])
    metrics = [name for name in _columns([trial.metrics for trial in trials]) if name not in names]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # Not the objective's name: accuracy and loss are metrics of the training, too.
    writer.writerow(["trial", "status", "score", *names, *metrics, "failure"])
    for trial in trials:
        cells = [trial.values.get(name, "") for name in names]
        # KerasTuner keeps counts as floats; the mean of several executions need not be whole.
        epochs = trial.metrics.get("epochs")
        is_whole = isinstance(epochs, float) and epochs.is_integer()
        counts = {"epochs": int(epochs or 0)} if is_whole else {}
        cells += [counts.get(name, trial.metrics.get(name, "")) for name in metrics]
        score = "" if trial.score is None else trial.score
        writer.writerow([trial.trial_id, trial.status, score, *cells, trial.failure])
    return text.getvalue()


def _as_text(trials: Sequence[TrialResult], search: Search) -> str:
    from rich.console import Console

    text = io.StringIO()
    table = rich_table(trials_table(trials, search), wraps=False)
    Console(file=text, width=1000).print(table)  # as wide as its cells; a terminal wraps it
    return text.getvalue().rstrip()


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))
