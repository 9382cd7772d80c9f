"""`WeightsGuard`: keeps a training from going on with weights that are no numbers."""

from collections.abc import Callable, Mapping

import keras
import numpy as np

from ..errors import UserError
from .nonfinite import NonFiniteWeightsError, first_nonfinite
from .options import CheckpointOptions
from .replica_values import copy_values
from .shared_store import SharedStore
from .training_state import SavedTraining
from .variables import state_variables
from .workers import Workers

# From one generation: then neither other data nor a smaller rate helps.
_ROLLBACKS = 3


class WeightsGuard:
    """Stops a training whose weights are not finite, or rolls it back to the newest checkpoint.

    Args:
        model: The compiled model.
        store: The training's generations.
        workers: Of the training.
        options: Say whether to stop or to roll back.
        announce: Called with a line after a rollback.

    Raises:
        UserError: The learning rate is to be lowered after a rollback, but is a schedule.
    """

    def __init__(
        self,
        model: keras.Model,
        store: SharedStore,
        workers: Workers,
        options: CheckpointOptions,
        announce: Callable[[str], None],
    ) -> None:
        self._model = model
        self._store = store
        self._workers = workers
        self._options = options
        self._announce = announce
        self._allowed: set[str] = set()
        self._rolled_back: list[str] = []
        if options.lowers_rate and not _has_settable_rate(model.optimizer):
            raise UserError(
                f"rollback_rate is {options.rollback_rate!r}, but the learning rate is a schedule:"
                " pass rollback_rate=1.0, or a learning rate that is a number"
            )

    def allow_present(self) -> int:
        """Allow what is not finite at the start, such as a mask of minus infinities.

        Returns:
            The bytes of all variables.
        """
        variables = state_variables(self._model)
        arrays = copy_values(variables)
        constant = {n: array for n, array in arrays.items() if not variables[n].trainable}
        self._allowed = {name for name, array in constant.items() if first_nonfinite({name: array})}
        return sum(array.nbytes for array in arrays.values())

    def check(self, arrays: Mapping[str, np.ndarray], *, epoch: int, step: int) -> None:
        """Raise `NonFiniteWeightsError` for arrays of which one is not finite.

        Args:
            arrays: By name; what metrics and callbacks hold may be anything.
            epoch: The epoch, counted from 1.
            step: The step of the epoch, counted from 1.
        """
        bad = self._first_nonfinite(arrays)
        if bad is not None:
            raise NonFiniteWeightsError(bad, epoch=epoch, step=step)

    def first_nonfinite_weight(self) -> str | None:
        """Return the name of a variable of the training that is not finite; `None` without any."""
        arrays = copy_values(state_variables(self._model))
        return self._workers.of_chief(
            "the check of the weights", lambda: self._first_nonfinite(arrays)
        )

    def handle(self, error: NonFiniteWeightsError) -> None:
        """Roll back where that was asked for and may help; else raise the error.

        The training continues with the next batches: the same ones would lead to the same end.
        """
        found = self._store.newest() if self._options.on_nonfinite == "rollback" else None
        if found is None:
            raise error
        generation, arrays, state = found
        self._rolled_back.append(generation.digest)
        if self._rolled_back.count(generation.digest) > _ROLLBACKS:
            raise error
        SavedTraining(generation, arrays, state).restore_variables(self._model)
        self._model.reset_metrics()
        rate = ""
        if self._options.lowers_rate:
            lowered = float(self._model.optimizer.learning_rate) * self._factor(generation.digest)
            self._model.optimizer.learning_rate = lowered
            rate = f", with the learning rate {lowered:g}"
        self._announce(
            f"{error.variable} is not finite after step {error.step} of epoch {error.epoch}: rolled"
            f" back to {generation.path.name}{rate}; training continues with the next batches"
        )

    def _first_nonfinite(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        checked = {n: a for n, a in arrays.items() if n.startswith(("model/", "optimizer-"))}
        bad = first_nonfinite(checked, allowed=self._allowed)
        return None if bad is None else bad.split("/", 2)[2]

    def _factor(self, digest: str) -> float:
        """Lower at every rollback to the same generation, which has the rate from before."""
        return float(self._options.rollback_rate ** self._rolled_back.count(digest))


def _has_settable_rate(optimizer: keras.optimizers.Optimizer) -> bool:
    try:
        optimizer.learning_rate = float(optimizer.learning_rate)
    except (TypeError, ValueError, AttributeError):
        return False
    return True
