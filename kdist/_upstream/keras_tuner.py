"""KerasTuner's oracles without files.

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
    """Hyperband: trains many trials for a few epochs, and the best of them for more."""
