"""KerasTuner's oracles, which choose the trials, made to survive a kill."""

import json
from pathlib import Path
from typing import Any

import keras_tuner

from ..whole_files import write_whole


class _Resumable(keras_tuner.Oracle):
    """What KerasTuner 1.4.8 leaves open when its process is killed, closed.

    Its files are written in place, so a kill may leave half of one; a finished trial stays among
    the ongoing ones until the next is made, and would be run again; and a trial whose file was
    written before the oracle's is counted but never run.
    """

    max_failures: int | None = None

    def save(self) -> None:
        """Write the oracle's state."""
        write_whole(Path(self._get_oracle_fname()), json.dumps(self.get_state()))

    def _save_trial(self, trial: Any) -> None:
        folder = Path(self._get_trial_dir(trial.trial_id))
        write_whole(folder / "trial.json", json.dumps(trial.get_state()))

    def reload(self) -> None:
        """Read the state, and line up the trials that were not finished."""
        super().reload()
        for trial_id in set(self.trials) - set(self.start_order):
            del self.trials[trial_id]
        unfinished = [self.trials[i] for i in self.start_order if self.trials[i].status in _OPEN]
        for trial in unfinished:
            trial.metrics = type(trial.metrics)()
        # It is popped from the end.
        self._retry_queue = [trial.trial_id for trial in reversed(unfinished)]

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The values of a new trial; none after too many failures in a row."""
        last = [self.trials[i].status for i in self.end_order[-(self.max_failures or 1) :]]
        if self.max_failures and last == ["FAILED"] * self.max_failures:
            return {"status": "STOPPED", "values": None}
        values: dict[str, Any] = super().populate_space(trial_id)
        return values

    def get_best_trials(self, num_trials: int = 1) -> list[Any]:
        """The best finished trials; who reached the target comes before who did not."""
        # Keras's pads the list with failed trials, of which no model can be loaded.
        finished = [trial for trial in self.trials.values() if trial.status == "COMPLETED"]
        sign = -1 if self.objective.direction == "max" else 1

        def order(trial: Any) -> tuple[bool, float]:
            missed = trial.metrics.exists("reached") and trial.metrics.get_last_value("reached") < 1
            return missed, sign * trial.score

        return sorted(finished, key=order)[:num_trials]


_OPEN = ("RUNNING", "INVALID")


class RandomSearchOracle(_Resumable, keras_tuner.oracles.RandomSearchOracle):
    """Draws every trial at random."""


class BayesianOptimizationOracle(_Resumable, keras_tuner.oracles.BayesianOptimizationOracle):
    """Fits a Gaussian process to the trials so far, after some at random."""


class HyperbandOracle(_Resumable, keras_tuner.oracles.HyperbandOracle):
    """Trains many trials for few epochs, and the best of them further.

    Args:
        min_epochs: Epochs that a trial is granted at least; beyond the warm-up, as a rate that is
            still rising tells nothing.
        **kwargs: As for KerasTuner's.
    """

    def __init__(self, *, min_epochs: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_epochs = min_epochs
        # As its constructor does, which has no such argument.
        self._current_bracket = self._get_num_brackets() - 1
        self._brackets: list[Any] = []
        self._start_new_bracket()


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
    """The oracle of a search.

    Args:
        kind: `"random"`, `"bayesian"` or `"hyperband"`.
        objective: A `keras_tuner.Objective`.
        max_trials: Trials at most; `None` (Hyperband only) as many as its brackets have.
        max_epochs: Of the trials that Hyperband trains longest.
        min_epochs: Of those that it trains least.
        factor: Hyperband's.
        seed: Of the draws.
        max_failures: Failed trials in a row after which no more are made; `None` for no limit.
    """
    options: dict[str, Any] = {
        "objective": objective,
        "seed": seed + 1,  # KerasTuner takes 0 for "any"
        # Counted above instead: KerasTuner raises before the trial is written.
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
