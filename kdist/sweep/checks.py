"""Checks of a sweep before anything is run, and before TensorFlow is imported."""

from ..errors import UserError
from ..training.config import TrainConfig
from ..training.pipelines import load_data
from .experiment import Experiment

# Of ten seconds at least, a day.
_MOST_RUNS = 10_000


def check_experiment(experiment: Experiment) -> None:
    """Check the settings of all runs, and their data where it need not be downloaded.

    Raises:
        UserError: There are too many runs, or one of them would be refused.
    """
    runs = len(experiment.round(0)) * experiment.repetitions
    if runs > _MOST_RUNS:
        raise UserError(
            f"received a sweep of {runs:,} runs, at most {_MOST_RUNS:,} are possible: pass fewer"
            " values, rounds or seeds"
        )
    # Rounds differ in nothing but the seed, which is the largest in the last.
    configs = [
        TrainConfig.from_dict({**point.config})
        for point in experiment.round(experiment.repetitions - 1)
    ]
    for config in configs[:1]:  # they have the same data
        if config.data_dir is not None or config.dataset == "sample":
            load_data(config, announce=lambda _: None)
