"""Results of a search: the rows of its trials, their table, and the best settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UserError
from ..fields import field_names
from ..optimizers.scaling import scale_learning_rate
from ..training.config import TrainConfig
from ..training.run_record import RunRecord
from ..training.settings import Checkpoints, Output
from .search_settings import Search
from .study_folder import Row
from .tables import ResultsTable, format_seconds
from .trial import read_measurements

PENALTY = 10
"""A trial that missed the target scores at least this multiple of its time budget, as in PAR10, the
penalized average runtime of Hutter et al. 2009, "ParamILS", section 3."""

TRIAL_COLUMNS = (
    *("name", "status", "error", "score", "reached", "values", "seconds", "epochs"),
    *("images_per_sec", "learning_rate", "best_val_accuracy", "run_dir"),
)
"""The columns of a trial's row, in the order of `trials.csv`; the hyperparameters come last."""


def make_trial_config(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a trial for `kdist train`.

    Learning rates are drawn for one replica and the `batch_size` of `base`, and scaled to the
    trial's batch size by `lr_rule`: a rate that suits a batch of 32 is not tried unchanged with a
    batch of 256. The run itself scales the rate to the number of replicas.

    Args:
        base: The settings that are not tuned.
        values: Settings of the trial, from `SearchSpace.decode`.

    Raises:
        UserError: Settings are incompatible, such as Adam with a momentum.

    Examples:
        >>> make_trial_config(TrainConfig(), {"base_lr": 0.01, "batch_size": 64}).base_lr
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


def read_result(run: RunRecord, search: Search) -> Row:
    """Return the columns that are read from the run of a trial.

    The score is the best value of the objective over the epochs. With `seconds_to_target`, the
    score is the time to the target. A trial that missed the target scores at least `PENALTY` times
    the time budget, and more with a lower accuracy: of such trials, the trial that came nearest to
    the target is the best, even if another trial ended earlier.

    Raises:
        UserError: The loss was not finite, or no epoch has a finite value of the metric.
    """
    measured = read_measurements(run)
    row = {name: measured[name] for name in TRIAL_COLUMNS if name in measured}
    if search.objective == "seconds_to_target":
        reached, best = measured["seconds_to_target"], measured["best_val_accuracy"] or 0.0
        missed_by = max(0.0, search.config.target_accuracy - best)
        penalty = PENALTY * (search.config.time_budget or 0.0) * (1 + missed_by)
        score = penalty if reached is None else reached
        return row | {"score": score, "reached": reached is not None}
    values = run.known_values(search.objective)
    if not values:
        raise UserError(f"no epoch has a finite {search.objective}")
    return row | {"score": max(values) if search.direction == "max" else min(values)}


def sort_trials(trials: Sequence[Row], search: Search) -> list[Row]:
    """Sort the trials that are done, best first; trials that missed the target come last."""
    sign = -1 if search.direction == "max" else 1
    scored = [row for row in trials if row["status"] == "done"]
    return sorted(scored, key=lambda row: (row["reached"] is False, sign * row["score"]))


def best_settings(trials: Sequence[Row], search: Search) -> dict[str, Any] | None:
    """Return the best trial's settings for `kdist train --config`; `None` if no trial is done."""
    ranked = sort_trials(trials, search)
    if not ranked:
        return None
    settings = make_trial_config(search.config, ranked[0]["values"]).to_dict()
    # Tracking and checkpoints of the search are not settings of the best run.
    return {
        name: value
        for name, value in settings.items()
        if name not in field_names(Output, Checkpoints)
    }


def describe_values(values: Mapping[str, Any]) -> str:
    """Format the values that were drawn for a trial in one line."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def make_trials_table(trials: Sequence[Row], search: Search) -> ResultsTable:
    """Make a table of the trials, best first, failed trials last."""
    failed = [row for row in trials if row["status"] == "failed"]

    def format_score(row: Row) -> str:
        if row["status"] == "failed":
            return "failed"
        return f"{row['score']:.4g}" + (", missed the target" if row["reached"] is False else "")

    return ResultsTable(
        title="Trials",
        columns=["Trial", search.objective, "Time", "Epochs", "Settings"],
        rows=[
            [
                row["name"].removeprefix("trial-"),
                format_score(row),
                format_seconds(row["seconds"]),
                "" if row["epochs"] is None else f"{row['epochs']:.0f}",
                describe_values(row["values"]),
            ]
            for row in [*sort_trials(trials, search), *failed]
        ],
        note=f"Best first, by {search.objective}. Learning rates are for one replica and a batch of"
        f" {search.config.batch_size}.",
    )
