"""KerasTuner's private names: files of its oracles and tuners, and methods that kdist replaces.

Not imported by the package itself: KerasTuner's import takes a second. `HookedOracle` and
`HookedTuner` give each private method that KerasTuner calls a public name, to be overridden;
the public method of the class here does what KerasTuner does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import keras_tuner


def oracle_file(oracle: keras_tuner.Oracle) -> Path:
    """Where an oracle keeps its state."""
    return Path(oracle._get_oracle_fname())


def trial_file(oracle: keras_tuner.Oracle, trial_id: str) -> Path:
    """Where an oracle keeps the state of a trial."""
    return Path(oracle._get_trial_dir(trial_id)) / "trial.json"


def run_next(oracle: keras_tuner.Oracle, trial_ids: Sequence[str]) -> None:
    """Have an oracle hand out these trials again, in this order, before it makes new ones."""
    oracle._retry_queue = list(reversed(trial_ids))  # it is popped from the end


def begin_brackets(oracle: keras_tuner.oracles.HyperbandOracle) -> None:
    """Begin Hyperband's brackets, as its constructor does, by the oracle's present settings."""
    oracle._current_bracket = oracle._get_num_brackets() - 1
    oracle._brackets = []
    oracle._start_new_bracket()


class HookedOracle(keras_tuner.Oracle):
    """An oracle whose `write_trial` can be overridden; the first base class of two."""

    def write_trial(self, trial: Any) -> None:
        """Write the state of a trial."""
        super()._save_trial(trial)

    def _save_trial(self, trial: Any) -> None:
        self.write_trial(trial)


class HookedTuner(keras_tuner.Tuner):
    """A tuner whose steps can be overridden."""

    @property
    def is_worker(self) -> bool:
        """Whether a chief hands out the trials."""
        return bool(self._is_worker())

    @property
    def tuner_file(self) -> Path:
        """Where the tuner keeps its state."""
        return Path(self._get_tuner_fname())

    def checkpoint_file(self, trial_id: str) -> Path:
        """The weights of a trial's best epoch."""
        return Path(self._get_checkpoint_fname(trial_id))

    def build_config_file(self, trial_id: str) -> Path:
        """What a trial's model was built with, as JSON."""
        return Path(self._get_build_config_fname(trial_id))

    def declare_space(self) -> None:
        """Tell the oracle the search space, by building models until all of it is known."""
        super()._populate_initial_space()

    def make_model(self, hp: Any) -> keras.Model:
        """Build and compile a model."""
        return super()._build_hypermodel(hp)

    def prepare_model(self, hp: Any) -> keras.Model:
        """Build and compile a model after memory was freed; refuse what is no model."""
        return super()._try_build(hp)

    def train_once(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        """Build and fit the model of a trial: one of its executions."""
        return super()._build_and_fit_model(trial, *args, **kwargs)

    def run_and_report(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Run a trial and tell the oracle its results."""
        self._run_and_update_trial(trial, *args, **kwargs)

    def run_and_set_status(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """`run_and_report`, then set the trial's status; only fatal errors are raised."""
        super()._try_run_and_update_trial(trial, *args, **kwargs)

    def use_tuners_compile_arguments(self, model: keras.Model) -> None:
        """Compile a model again where the tuner was given an optimizer, loss or metrics."""
        self._override_compile_args(model)

    def _populate_initial_space(self) -> None:
        self.declare_space()

    def _build_hypermodel(self, hp: Any) -> keras.Model:
        return self.make_model(hp)

    def _try_build(self, hp: Any) -> keras.Model:
        return self.prepare_model(hp)

    def _build_and_fit_model(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        return self.train_once(trial, *args, **kwargs)

    def _try_run_and_update_trial(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        self.run_and_set_status(trial, *args, **kwargs)
