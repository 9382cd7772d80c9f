"""Start a W&B run that records only what it is given."""

import os
import secrets
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from .wandb_account import wandb_mode

PROJECT = "kdist"
# Time limits for `wandb.init` to reach the server, and for the end of a run to upload the rest: a
# lost network delays training by a minute and does not stop it. What was not uploaded is kept, for
# `wandb sync`.
INIT_SECONDS = 20
FINISH_SECONDS = 60


def private_settings(*, save_code: bool = False) -> dict[str, Any]:
    """Return settings that stop wandb from collecting anything by itself.

    By default it records the command line, installed packages, git remotes, the user's name,
    printed output and the main script, any of which may contain a key.
    """
    return {
        "console": "off",
        "disable_git": True,
        "disable_code": not save_code,
        "save_code": save_code,
        "disable_job_creation": True,
        "label_disable": True,
        "x_disable_meta": True,
        "x_save_requirements": False,
        "init_timeout": INIT_SECONDS,
        "finish_timeout": FINISH_SECONDS,
    }


def begin_run(
    folder: Path,
    *,
    config: Mapping[str, Any],
    group: str | None = None,
    name: str | None = None,
    job_type: str | None = None,
    save_code: bool = False,
    run_id: str | None = None,
) -> Any:
    """Start a run, online if there is an account and the server answers, otherwise offline.

    Args:
        folder: The files are written to `<folder>/wandb`.
        config: Settings of the run.
        group: Group of the run.
        name: Name of the run.
        job_type: Kind of run.
        save_code: Whether to upload the main script, too.
        run_id: The id of a run that is resumed. Offline its files are in another folder, which
            `wandb sync` adds to the same run.

    Returns:
        The `wandb.Run`, which is then also `wandb.run`.
    """
    mode = wandb_mode()
    settings = private_settings(save_code=save_code) | {"root_dir": str(folder.absolute())}
    named = {"WANDB_RUN_ID", "WANDB_SWEEP_ID"} & set(os.environ)  # which has a name already
    given = {"config": dict(config), "group": group, "name": name, "job_type": job_type}
    online: dict[str, Any] = {}
    if run_id is not None:
        given["id"], online = run_id, {"resume": "allow"}
    elif not named:
        online = {"id": secrets.token_hex(4)}
    before = set((folder / "wandb").glob("run-*"))
    if mode not in ("offline", "disabled"):
        try:
            return _init(given | online, settings | {"mode": mode, "quiet": True})
        except Exception as error:
            problem = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"W&B cannot be reached ({problem}): the run is saved offline", stacklevel=2
            )
            mode = "offline"
            if not named:  # an empty file, which `wandb sync` would send as a run
                mine = given.get("id") or online["id"]
                for left in set((folder / "wandb").glob(f"run-*-{mine}")) - before:
                    shutil.rmtree(left, ignore_errors=True)
    return _init(given, settings | {"mode": mode, "silent": True})


def _init(given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    # A sweep has its own project, and wandb warns of another.
    named = {"WANDB_PROJECT", "WANDB_SWEEP_ID"} & set(os.environ)
    return wandb.init(
        project=None if named else PROJECT, settings=wandb.Settings(**settings), **given
    )
