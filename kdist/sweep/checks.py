"""Checks of a sweep before anything is run, and before TensorFlow is imported."""

import os
from collections.abc import Sequence

from ..data.datasets import needs_no_download
from ..errors import UserError
from ..launch.options import MOST_WORKERS
from ..launch.shares import divide, visible_cores, visible_gpus
from ..training.config import TrainConfig
from ..training.images import load_data
from .experiment import Experiment

# Of ten seconds at least, a day.
_MOST_RUNS = 10_000


def check_experiment(experiment: Experiment) -> None:
    """Check the settings of all runs, and their data where it need not be downloaded.

    Data of the user's are read by the runs alone, as their files import TensorFlow.

    Raises:
        UserError: There are too many runs, one of them would be refused, or its speed could not be
            measured.
    """
    runs = len(experiment.round(0)) * experiment.repetitions
    if runs > _MOST_RUNS:
        raise UserError(
            f"received a sweep of {runs:,} runs, at most {_MOST_RUNS:,} are possible: pass fewer"
            " values, rounds or seeds"
        )
    _check_workers(experiment)
    # Rounds differ in nothing but the seed, which is the largest in the last.
    configs = [
        TrainConfig.from_dict({**point.config})
        for point in experiment.round(experiment.repetitions - 1)
    ]
    for config in configs[:1]:  # they have the same data
        if config.model is None and needs_no_download(config.dataset, config.data_dir):
            _check_batches(experiment, len(load_data(config, announce=lambda _: None).train_images))


def _check_workers(experiment: Experiment) -> None:
    most = max(experiment.workers)
    if most > MOST_WORKERS:
        raise UserError(f"received --workers {most}: pass numbers from 1 to {MOST_WORKERS}")


def check_shares(workers: Sequence[int]) -> None:
    """Check that this machine's GPUs can be divided among workers.

    Args:
        workers: Numbers of workers, each of one point.

    Raises:
        UserError: They cannot share the GPUs evenly.
    """
    for number in workers:
        if number > 1:
            divide(workers=number, gpus=visible_gpus(os.environ), cores=visible_cores())


def _check_batches(experiment: Experiment, images: int) -> None:
    if images < experiment.timed_batch:
        raise UserError(
            f"{images:,} training images do not fill a global batch of {experiment.timed_batch:,},"
            " so that its speed cannot be measured: drop the largest batch or number of replicas"
        )
