"""orbax's `CheckpointManager`, given the arrays of model and optimizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .base import ARRAYS, Candidate, Values, filled


def _manager(folder: Path) -> Any:
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=3, create=True)
    return ocp.CheckpointManager(folder, options=options)


def _save(manager: Any, step: int, arrays: dict[str, np.ndarray]) -> None:
    import orbax.checkpoint as ocp

    manager.save(step, args=ocp.args.StandardSave(arrays))


class OrbaxValues(Values):
    """Arrays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manager = _manager(folder)

    def save(self, number: int) -> None:
        """Save, and wait for orbax's thread."""
        _save(self._manager, number, filled(number))
        self._manager.wait_until_finished()

    def restore(self) -> dict[str, np.ndarray] | None:
        """Restore the latest step."""
        import orbax.checkpoint as ocp

        step = self._manager.latest_step()
        if step is None:
            return None
        like = {name: np.zeros(shape, "float32") for name, shape in ARRAYS.items()}
        found = self._manager.restore(step, args=ocp.args.StandardRestore(like))
        return {name: np.asarray(array) for name, array in found.items()}

    def strays(self) -> list[str]:
        """All besides the steps that the manager knows."""
        steps = {str(step) for step in self._manager.all_steps()}
        return sorted(path.name for path in self._folder.iterdir() if path.name not in steps)

    @staticmethod
    def newest(folder: Path) -> list[Path]:
        """All files of the latest step."""
        step = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        return sorted(path for path in (folder / str(step)).rglob("*") if path.is_file())


class OrbaxManager(Candidate):
    """orbax without Keras."""

    title = "orbax CheckpointManager"
    module = "orbax.checkpoint"
    values = OrbaxValues

    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:
        """Save weights, seeds and optimizer at the end of an epoch."""
        import keras
        import orbax.checkpoint as ocp
        from kdist.checkpoint.values import assign_values, copy_values, state_variables

        model.optimizer.build(model.trainable_variables)
        variables = state_variables(model)
        # orbax takes "/" in a name for a folder.
        keys = {name: name.replace("/", ".") for name in variables}
        manager = _manager(folder)
        step = manager.latest_step()
        if step is not None:
            arrays = copy_values(variables)
            like = {keys[name]: array for name, array in arrays.items()}
            found = manager.restore(step, args=ocp.args.StandardRestore(like))
            saved = {name: np.asarray(found[key]) for name, key in keys.items()}
            assign_values(variables, saved)

        def save(epoch: int, _: Any) -> None:
            arrays = copy_values(variables)
            _save(manager, epoch + 1, {keys[name]: array for name, array in arrays.items()})

        callback = keras.callbacks.LambdaCallback(
            on_epoch_end=save, on_train_end=lambda _: manager.wait_until_finished()
        )
        return callback, step or 0

    def saves(self, folder: Path, model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """Save copies of the variables; orbax's thread writes them."""
        manager = _manager(folder)
        variables = [*model.variables, *model.optimizer.variables]

        def save() -> None:
            arrays = {f"{i:04d}": np.array(one.numpy()) for i, one in enumerate(variables)}
            _save(manager, int(model.optimizer.iterations.numpy()), arrays)

        return save, manager.wait_until_finished
