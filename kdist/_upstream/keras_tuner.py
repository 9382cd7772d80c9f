"""KerasTuner's oracles without files, and Hyperband with a minimum of epochs.

The package itself does not import this module, as importing KerasTuner takes a second.
"""

from typing import Any

import keras_tuner


class OracleWithoutFiles(keras_tuner.Oracle):
    """An oracle whose state is written by its owner; use it as the first base class.

    KerasTuner writes a file for each trial and a file for the oracle, in place: a kill may leave
    half of a file, or files that contradict each other.
    """

    def save(self) -> None:
        """Do nothing."""

    def _save_trial(self, trial: Any) -> None:
        """Do nothing."""


class RandomSearchOracle(OracleWithoutFiles, keras_tuner.oracles.RandomSearchOracle):
    """Random search: draws every trial independently."""


class BayesianOptimizationOracle(
    OracleWithoutFiles, keras_tuner.oracles.BayesianOptimizationOracle
):
    """Bayesian optimization: random trials first, then a Gaussian process fitted to the results."""


class HyperbandOracle(OracleWithoutFiles, keras_tuner.oracles.HyperbandOracle):
    """Hyperband: trains many trials for a few epochs, and the best of them for more.

    `min_epochs` should exceed the warm-up: results are meaningless while the learning rate rises.
    """

    def __init__(self, *, min_epochs: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_epochs = min_epochs
        # Repeated here, as KerasTuner's constructor takes no `min_epochs`.
        self._current_bracket = self._get_num_brackets() - 1
        self._brackets: list[dict[str, Any]] = []
        self._start_new_bracket()
