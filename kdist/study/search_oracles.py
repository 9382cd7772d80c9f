"""KerasTuner's oracles, which choose the trials, made resumable after a kill."""

import itertools
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras_tuner

from .._upstream.keras_tuner import (
    HookedOracle,
    begin_brackets,
    bracket_rounds,
    hyperband_trials,
    oracle_file,
    run_next,
    trial_file,
)
from ..files import atomic_write

if TYPE_CHECKING:
    from .._upstream.keras_tuner import BracketRound


def make_oracle(
    kind: str,
    *,
    objective: Any,
    max_trials: int | None,
    max_epochs: int,
    min_epochs: int = 1,
    factor: int = 3,
    seed: int = 0,
    max_failures: int | None = None,
) -> keras_tuner.Oracle:
    """Make the oracle that chooses the trials of a `ReplicaTuner`.

    Args:
        kind: `"random"`, `"bayesian"` or `"hyperband"`.
        objective: A `keras_tuner.Objective`.
        max_trials: Maximum number of trials; `None` (Hyperband only) for all of its brackets.
        max_epochs: Epochs of the trials that Hyperband trains longest.
        min_epochs: Epochs of the trials that Hyperband trains shortest.
        factor: Hyperband's reduction factor.
        seed: Seed of the random draws.
        max_failures: Failed trials in a row after which the search stops; `None` for no limit.

    Returns:
        A KerasTuner oracle that can be resumed after its process was killed.

    Example:
        ```python
        objective = keras_tuner.Objective("val_accuracy", "max")
        oracle = kdist.study.make_oracle(
            "random", objective=objective, max_trials=20, max_epochs=10
        )
        tuner = kdist.study.ReplicaTuner(oracle, build, strategy=strategy, directory="runs")
        ```
    """
    options: dict[str, Any] = {
        "objective": objective,
        "seed": seed + 1,  # KerasTuner takes 0 for "any"
        # Counted in `populate_space`: KerasTuner would raise before the trial is written.
        "max_consecutive_failed_trials": 2**31,
    }
    oracle: Any
    if kind == "hyperband":
        oracle = HyperbandOracle(
            max_epochs=max_epochs, min_epochs=min_epochs, factor=factor, **options
        )
        oracle.max_trials = max_trials
    elif kind == "bayesian":
        # KerasTuner would draw three times as many at random as there are dimensions.
        initial = max(2, (max_trials or 0) // 3)
        oracle = BayesianOptimizationOracle(
            max_trials=max_trials, num_initial_points=initial, **options
        )
    else:
        oracle = RandomSearchOracle(max_trials=max_trials, **options)
    oracle.max_failures = max_failures
    return oracle


def total_trials(oracle: keras_tuner.Oracle) -> int | None:
    """Return the number of trials that an oracle will have made in the end, if it knows."""
    most: int | None = oracle.max_trials
    if not isinstance(oracle, keras_tuner.oracles.HyperbandOracle):
        return most
    trials = hyperband_trials(oracle)
    return trials if most is None else min(trials, most)


class _Resumable(HookedOracle):
    """Makes an oracle of KerasTuner 1.4.8 resumable after its process was killed.

    KerasTuner writes its files in place, so a kill may leave an incomplete one. A finished trial
    stays among the ongoing ones until the next one is made, and would run again. A trial whose file
    was written before the oracle's is counted but never run.

    It also removes the checkpoints of trials that have ended, as it alone knows, in the process of
    a search's chief, which of them may be continued by another trial.
    """

    max_failures: int | None = None

    def save(self) -> None:
        """Write the state of the oracle."""
        atomic_write(oracle_file(self), json.dumps(self.get_state()))

    def write_trial(self, trial: Any) -> None:
        """Write the state of a trial."""
        atomic_write(trial_file(self, trial.trial_id), json.dumps(trial.get_state()))

    def reload(self) -> None:
        """Read the state, and schedule the unfinished trials."""
        super().reload()
        for trial_id in set(self.trials) - set(self.start_order):
            del self.trials[trial_id]
        unfinished = [self.trials[i] for i in self.start_order if self.trials[i].status in _OPEN]
        for trial in unfinished:
            trial.metrics = type(trial.metrics)()
        run_next(self, [trial.trial_id for trial in unfinished])

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Return the values of a new trial; stop after too many failures in a row."""
        last = [self.trials[i].status for i in self.end_order[-(self.max_failures or 1) :]]
        if self.max_failures and last == ["FAILED"] * self.max_failures:
            return {"status": "STOPPED", "values": None}
        values: dict[str, Any] = super().populate_space(trial_id)
        if values["status"] == "STOPPED":
            self._remove_checkpoints(self._in_use())
        return values

    def trial_has_ended(self) -> None:
        """Remove the checkpoints that no trial continues."""
        self._remove_checkpoints(self._in_use() | self.promotable())

    def promotable(self) -> set[str]:
        """Return the ended trials of which the oracle may still promote some."""
        return set()

    def _in_use(self) -> set[str]:
        """Trials that have not ended, and those that were promoted to them."""
        running = [trial for trial in self.trials.values() if trial.status in _OPEN]
        promoted = {trial.hyperparameters.values.get("tuner/trial_id") for trial in running}
        return {trial.trial_id for trial in running} | (promoted - {None})

    def _remove_checkpoints(self, keep: set[str]) -> None:
        for trial_id in set(self.trials) - keep:
            folder = trial_file(self, trial_id).parent / "checkpoints"
            shutil.rmtree(folder, ignore_errors=True)

    def get_best_trials(self, num_trials: int = 1) -> list[Any]:
        """Return the best finished trials; those that missed the target come last."""
        # Keras's pads the list with failed trials, of which no model can be loaded.
        finished = [trial for trial in self.trials.values() if trial.status == "COMPLETED"]
        sign = -1 if self.objective.direction == "max" else 1

        def order(trial: Any) -> tuple[bool, float]:
            missed = trial.metrics.exists("reached") and trial.metrics.get_last_value("reached") < 1
            return missed, sign * trial.score

        return sorted(finished, key=order)[:num_trials]


_OPEN = ("RUNNING", "INVALID")


class RandomSearchOracle(_Resumable, keras_tuner.oracles.RandomSearchOracle):
    """Random search: draws every trial independently."""


class BayesianOptimizationOracle(_Resumable, keras_tuner.oracles.BayesianOptimizationOracle):
    """Bayesian optimization: random trials first, then a Gaussian process fitted to the results."""


class HyperbandOracle(_Resumable, keras_tuner.oracles.HyperbandOracle):
    """Hyperband: trains many trials for a few epochs, and the best of them for more.

    Args:
        min_epochs: Minimum epochs per trial. It should exceed the warm-up: results are meaningless
            while the learning rate is still rising.
        **kwargs: As for `keras_tuner.oracles.HyperbandOracle`.
    """

    def __init__(self, *, min_epochs: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_epochs = min_epochs
        begin_brackets(self)  # again: KerasTuner's constructor has no min_epochs

    def promotable(self) -> set[str]:
        """Return the ended trials that may still be promoted."""
        sign = -1 if self.objective.direction == "max" else 1
        ended = {i: trial for i, trial in self.trials.items() if trial.status == "COMPLETED"}
        losses = {i: sign * trial.score for i, trial in ended.items()}
        failed = {i for i, trial in self.trials.items() if trial.status == "FAILED"}
        return set().union(
            *(promotable(one, losses=losses, failed=failed) for one in bracket_rounds(self))
        )


def promotable(
    rounds: "Sequence[BracketRound]", *, losses: Mapping[str, float], failed: Collection[str]
) -> set[str]:
    """Return the finished trials of a bracket that may still be promoted.

    Hyperband promotes the best of a round while so many are left as are to be dropped.

    Args:
        rounds: Of the bracket.
        losses: Scores of finished trials, of which smaller ones are better.
        failed: Trials that failed, which are never promoted.
    """
    found: set[str] = set()
    trained = rounds[0].size  # at most
    for this, after in itertools.pairwise(rounds):
        trained -= sum(trial in failed for trial in this.trials)
        trained = max(0, trained - (this.size - after.size))  # in the round after this one
        left = trained - len(this.promoted)
        waiting = [one for one in this.trials if one in losses and one not in this.promoted]
        found |= set(sorted(waiting, key=losses.__getitem__)[: max(0, left)])
    return found
