"""`SearchTrials`: the trials of a search, which an oracle of KerasTuner chooses by their scores."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial as KerasTrial

from .._upstream.keras_tuner import (
    BayesianOptimizationOracle,
    HyperbandOracle,
    RandomSearchOracle,
)
from ..checkpoint.checkpoint_file import checkpoint_files
from ..errors import UserError
from ..training.config import SearchTrial
from ..training.run_record import RunRecord
from .search_results import TRIAL_COLUMNS, describe_values, make_trial_config, read_result
from .search_settings import Search
from .study_folder import Row, StudyFolder
from .trial import Trial
from .trial_process import remove_checkpoints

_STATE_FILE = "oracle.json"
_RUN_SETTINGS = {"save_model": False, "checkpoint_every": 300.0, "keep": 2}


def make_oracle(search: Search) -> keras_tuner.Oracle:
    """Make the oracle that chooses the trials of a search, with the search space.

    Raises:
        UserError: KerasTuner rejects a range of the space.
    """
    space = keras_tuner.HyperParameters()
    search.search_space().declare(space)
    options: dict[str, Any] = {
        "objective": keras_tuner.Objective(search.objective, search.direction),
        "hyperparameters": space,
        "seed": search.config.seed + 1,  # KerasTuner takes 0 as a random seed
        "max_consecutive_failed_trials": 2**31,  # `SearchTrials` counts failures
    }
    oracle: keras_tuner.Oracle
    if search.tuner == "hyperband":
        oracle = HyperbandOracle(
            max_epochs=search.config.epochs,
            factor=search.factor,
            **options,
        )
    elif search.tuner == "bayesian":
        # KerasTuner's default is three random trials for each setting, too many for a short search.
        initial = max(2, (search.max_trials or 0) // 3)
        oracle = BayesianOptimizationOracle(num_initial_points=initial, **options)
    else:
        oracle = RandomSearchOracle(**options)
    oracle.max_trials = search.max_trials
    oracle.verbose = 0
    return oracle


class SearchTrials:
    """The trials of a search.

    The state of the oracle is in `oracle.json`, which is written when a trial begins or ends. A
    trial that was running when the search was killed is the next trial of the resumed search.

    Args:
        search: The settings.
        folder: The folder of the search, inside `StudyFolder.open`.
        rows: The rows of the trials that ended before.

    Raises:
        UserError: `oracle.json` is damaged, or KerasTuner rejects a range of the space.
    """

    def __init__(self, search: Search, folder: StudyFolder, rows: Sequence[Row]) -> None:
        self._search, self._folder, self._rows = search, folder, list(rows)
        self._rows_at_start = len(rows)
        self._space = search.search_space()
        self._oracle = make_oracle(search)
        self._interrupted: list[KerasTrial] = []
        self.total = search.max_trials
        state = folder.read_json(_STATE_FILE)
        if state is not None:
            self._restore_oracle(state)

    def _restore_oracle(self, state: dict[str, Any]) -> None:
        oracle = self._oracle
        try:
            trials = [KerasTrial.from_state(trial) for trial in state["trials"]]
            oracle.trials = {trial.trial_id: trial for trial in trials}
            oracle.set_state(state["oracle"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{self._folder.path / _STATE_FILE} is damaged ({type(error).__name__}: {error}):"
                " pass another --output"
            ) from error
        rows = {row["name"]: row for row in self._rows}
        for trial in [trial for trial in trials if trial.status == "RUNNING"]:
            row = rows.get(_trial_name(trial.trial_id))
            if row is None:
                self._interrupted.append(trial)
            else:  # killed after the row was written
                self._tell_oracle(trial, row)

    def next_trial(self) -> Trial | None:
        """Return the next trial; `None` if none is left, or none can begin before a trial ends."""
        if self._interrupted:
            return self._make_trial(self._interrupted.pop(0))
        if self.failed_too_often:
            return None
        with warnings.catch_warnings():
            # A Gaussian process fitted to few points warns that it has not converged.
            warnings.filterwarnings("ignore", module="sklearn")
            trial = self._oracle.create_trial(str(len(self._oracle.start_order)))
        if trial.status == "RUNNING":
            self._save_oracle()
            return self._make_trial(trial)
        if trial.status == "STOPPED" and not self._is_over:  # by the oracle, before `max_trials`
            self._remove_checkpoints(needed=set())
        return None

    @property
    def failed_too_often(self) -> bool:
        """Whether the last `max_failures` trials failed, and the search stops early.

        A resumed search counts only its new trials: the cause of earlier failures may be mended.
        """
        last = self._rows[self._rows_at_start :][-self._search.max_failures :]
        failed = [row for row in last if row["status"] == "failed"]
        return len(failed) == self._search.max_failures and not self._is_over

    @property
    def _is_over(self) -> bool:
        return self.total is not None and len(self._oracle.trials) >= self.total

    def _make_trial(self, trial: KerasTrial) -> Trial:
        drawn = trial.hyperparameters.values
        values, name = self._space.decode(drawn), _trial_name(trial.trial_id)
        epochs, parent, error = drawn.get("tuner/epochs"), None, ""
        try:
            config = make_trial_config(self._search.config, values)
        except UserError as mistake:
            config, error = self._search.config, str(mistake)
        if "tuner/trial_id" in drawn:
            before = _trial_name(drawn["tuner/trial_id"])
            checkpoints = self._folder.trial_folder(before) / "run" / "checkpoints"
            parent = before if checkpoint_files(checkpoints) else None
        first, group = drawn.get("tuner/initial_epoch", 0) + 1, self._folder.path.resolve().name
        return Trial(
            name=name,
            config=config.to_dict() | _RUN_SETTINGS,
            columns={**dict.fromkeys(TRIAL_COLUMNS), "name": name, "values": values},
            description=describe_values(values)
            + (f", epochs {first} to {epochs}" if epochs else ""),
            search=SearchTrial(
                epochs=epochs,
                has_target=self._search.objective == "seconds_to_target",
                tracked={
                    "group": group,
                    "run_name": f"{group}-{trial.trial_id}",
                    "hyperparameters": values,
                },
            ),
            parent=parent,
            error=error,
        )

    def read_result(self, trial: Trial, run: RunRecord) -> Row:  # noqa: ARG002 - of `Study`
        """Return the columns that are read from the run of a trial; see `Study`."""
        return read_result(run, self._search)

    def describe_row(self, row: Row) -> str:
        """Return the result of a trial in a few words."""
        if row["status"] == "failed":
            return f"failed: {row['error']}"
        return f"{self._search.objective} {row['score']:.4g}"

    def end_trial(self, trial: Trial, row: Row) -> None:
        """Tell the oracle how a trial ended."""
        self._rows.append(row)
        self._tell_oracle(self._oracle.get_trial(trial.name.removeprefix("trial-")), row)
        self._remove_checkpoints(needed=self._list_promotable())

    def _tell_oracle(self, trial: KerasTrial, row: Row) -> None:
        if row["status"] == "done":
            self._oracle.update_trial(trial.trial_id, {self._search.objective: row["score"]})
        trial.status = "COMPLETED" if row["status"] == "done" else "FAILED"
        self._oracle.end_trial(trial)
        self._save_oracle()

    def _save_oracle(self) -> None:
        trials = [trial.get_state() for trial in self._oracle.trials.values()]
        self._folder.write_json(_STATE_FILE, {"oracle": self._oracle.get_state(), "trials": trials})

    def _list_promotable(self) -> set[str]:
        """Return the ids of Hyperband's trials that no later trial continues yet."""
        brackets = self._oracle.get_state().get("brackets", ())
        trials = [trial for bracket in brackets for part in bracket["rounds"] for trial in part]
        return {trial["id"] for trial in trials} - {trial["past_id"] for trial in trials}

    def _remove_checkpoints(self, *, needed: set[str]) -> None:
        """Remove the checkpoints of ended trials, unless the trial's id is in `needed`."""
        for trial_id, trial in self._oracle.trials.items():
            is_needed = trial.status == "COMPLETED" and trial_id in needed
            if trial.status != "RUNNING" and not is_needed:
                remove_checkpoints(self._folder.trial_folder(_trial_name(trial_id)))


def _trial_name(trial_id: str) -> str:
    return f"trial-{trial_id}"
