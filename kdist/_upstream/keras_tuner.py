"""Private names of KerasTuner: files of its oracles and tuners, and methods that kdist overrides.

The package itself does not import this module, as importing KerasTuner takes a second.
`HookedOracle` and `HookedTuner` have a public method for each private method that KerasTuner calls.
It does what KerasTuner does, and can be overridden.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import keras
import keras_tuner
from keras_tuner.src.engine.oracle import synchronized
from keras_tuner.src.engine.tuner_utils import SaveBestEpoch, TunerCallback

from .callback_attributes import STATEFUL, STATELESS

STATEFUL[SaveBestEpoch] = ("best_value",)
STATELESS.append(TunerCallback)


BestSaver: TypeAlias = SaveBestEpoch
"""KerasTuner's callback that saves the weights of the best epoch."""


class BracketRound(NamedTuple):
    """A round of one of Hyperband's brackets.

    Attributes:
        size: Trials that it is to have.
        trials: Those that it has.
        promoted: Those among them that have one in the next round.
    """

    size: int
    trials: list[str]
    promoted: list[str]


def save_best_in(
    file: Path, callbacks: Sequence[keras.callbacks.Callback]
) -> tuple[list[keras.callbacks.Callback], BestSaver | None]:
    """Return the callbacks, KerasTuner's saver among them a new one, and that one.

    Args:
        file: What it writes.
        callbacks: With KerasTuner's saver, or without any.
    """
    found, saver = list(callbacks), None
    index = index_of_saver(callbacks)
    if index < len(found):
        found[index] = saver = SaveBestEpoch(found[index].objective, str(file))
    return found, saver


def index_of_saver(callbacks: Sequence[keras.callbacks.Callback]) -> int:
    """Return where the callback is with which KerasTuner saves weights; the end without it."""
    found = (i for i, one in enumerate(callbacks) if isinstance(one, SaveBestEpoch))
    return next(found, len(callbacks))


def oracle_file(oracle: keras_tuner.Oracle) -> Path:
    """Return the file in which an oracle stores its state."""
    return Path(oracle._get_oracle_fname())


def trial_file(oracle: keras_tuner.Oracle, trial_id: str) -> Path:
    """Return the file in which an oracle stores the state of a trial."""
    return Path(oracle._get_trial_dir(trial_id)) / "trial.json"


def run_next(oracle: keras_tuner.Oracle, trial_ids: Sequence[str]) -> None:
    """Make an oracle start these trials again, in this order, before it creates new ones."""
    oracle._retry_queue = list(reversed(trial_ids))  # popped from the end


def begin_brackets(oracle: keras_tuner.oracles.HyperbandOracle) -> None:
    """Begin Hyperband's brackets again, with the oracle's current settings."""
    oracle._current_bracket = oracle._get_num_brackets() - 1
    oracle._brackets = []
    oracle._start_new_bracket()


def hyperband_trials(oracle: keras_tuner.oracles.HyperbandOracle) -> int:
    """Return the number of trials in all of Hyperband's brackets."""
    return sum(
        oracle._get_size(bracket, part)
        for bracket in range(oracle._get_num_brackets())
        for part in range(oracle._get_num_rounds(bracket))
    )


def bracket_rounds(oracle: keras_tuner.oracles.HyperbandOracle) -> list[list[BracketRound]]:
    """Return the rounds of those of Hyperband's brackets whose last round is not full."""
    found = []
    for bracket in oracle._brackets:
        rounds = bracket["rounds"]
        following = [*rounds[1:], []]
        found.append(
            [
                BracketRound(
                    oracle._get_size(bracket["bracket_num"], number),
                    [info["id"] for info in rounds[number]],
                    [info["past_id"] for info in following[number]],
                )
                for number in range(len(rounds))
            ]
        )
    return found


class HookedOracle(keras_tuner.Oracle):
    """An oracle whose hooks can be overridden; use it as the first base class."""

    def end_trial(self, trial: Any) -> None:
        """Record how a trial has ended."""
        super().end_trial(trial)
        self._trial_has_ended()

    def trial_has_ended(self) -> None:
        """Called after the end of a trial, while no other process is given one."""

    @synchronized
    def _trial_has_ended(self) -> None:
        self.trial_has_ended()

    def write_trial(self, trial: Any) -> None:
        """Save the state of a trial."""
        super()._save_trial(trial)

    def _save_trial(self, trial: Any) -> None:
        self.write_trial(trial)


class HookedTuner(keras_tuner.Tuner):
    """A tuner whose steps can be overridden."""

    @property
    def is_worker(self) -> bool:
        """Whether this process gets its trials from a chief."""
        return bool(self._is_worker())

    @property
    def tuner_file(self) -> Path:
        """The file in which the tuner stores its state."""
        return Path(self._get_tuner_fname())

    def checkpoint_file(self, trial_id: str) -> Path:
        """Return the file with the weights of a trial's best epoch."""
        return Path(self._get_checkpoint_fname(trial_id))

    def build_config_file(self, trial_id: str) -> Path:
        """Return the file with the build configuration of a trial's model, as JSON."""
        return Path(self._get_build_config_fname(trial_id))

    def declare_space(self) -> None:
        """Build models until the whole search space is known to the oracle."""
        super()._populate_initial_space()

    def make_model(self, hp: Any) -> keras.Model:
        """Build and compile a model."""
        return super()._build_hypermodel(hp)

    def prepare_model(self, hp: Any) -> keras.Model:
        """Free memory, then build and compile a model; reject anything that is not a model."""
        return super()._try_build(hp)

    def train_once(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        """Build and fit the model for one execution of a trial."""
        return super()._build_and_fit_model(trial, *args, **kwargs)

    def run_and_report(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Run a trial, and report its results to the oracle."""
        self._run_and_update_trial(trial, *args, **kwargs)

    def run_and_set_status(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Run and report a trial, and set its status; only fatal errors are raised."""
        super()._try_run_and_update_trial(trial, *args, **kwargs)

    def use_tuners_compile_arguments(self, model: keras.Model) -> None:
        """Compile a model again if the tuner has an optimizer, loss or metrics."""
        self._override_compile_args(model)

    def _populate_initial_space(self) -> None:
        self.declare_space()

    def _build_hypermodel(self, hp: Any) -> keras.Model:
        return self.make_model(hp)

    def _build_and_fit_model(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        return self.train_once(trial, *args, **kwargs)

    def _try_run_and_update_trial(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        self.run_and_set_status(trial, *args, **kwargs)
