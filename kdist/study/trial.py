"""`Trial`: a run of a study; `read_measurements`: its result."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UserError
from ..training.config import SearchTrial
from ..training.run_record import RunRecord
from .study_folder import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A run of a study: a point of a sweep, or a trial of a search.

    Attributes:
        name: The name of the trial's folder.
        config: The settings of the run, as `TrainConfig` takes them.
        columns: The columns of the row that identify the trial.
        description: The settings in a line, printed when the trial begins.
        search: The place of the run in a search; `None` in a sweep.
        parent: The name of the trial to continue; `None` to begin with new weights.
        error: The reason why the settings are invalid; empty for valid settings.
    """

    name: str
    config: Mapping[str, Any]
    columns: Mapping[str, Any]
    description: str = ""
    search: SearchTrial | None = None
    parent: str | None = None
    error: str = ""


def read_measurements(run: RunRecord, *, may_diverge: bool = False) -> Row:
    """Return the columns that are read from the folder of a run.

    Raises:
        UserError: Nothing was trained, or the loss was not finite and `may_diverge` is false.
    """
    images, batch = (
        int(run.summary_number(name) or 0) for name in ("training_images", "global_batch")
    )
    diverged = run.status == "diverged"
    if diverged and not may_diverge:
        raise UserError(f"the loss was not finite: {run.diverged_at}")
    if not (run.epochs or diverged) or not images or not batch:
        raise UserError("the run has no finished epoch, or no training images")
    met_epoch = run.summary_number("met_epoch")
    return {
        "global_batch": batch,
        "images_per_step": images / -(-images // batch),
        "images_per_sec": run.images_per_sec if run.is_warm else None,
        "learning_rate": run.summary_number("learning_rate"),
        "seconds": run.summary_number("seconds") if diverged else run.epochs[-1]["seconds"],
        "epochs": len(run.epochs),
        "diverged": diverged,
        "reached_target": met_epoch is not None if run.settings.get("validate") else None,
        "seconds_to_target": run.summary_number("met_seconds"),
        "epochs_to_target": None if met_epoch is None else int(met_epoch),
        "val_accuracy": run.summary_number("val_accuracy"),
        "best_val_accuracy": run.summary_number("best_val_accuracy"),
    }
