"""Begins a W&B run that records what it is given and nothing besides."""

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
# `wandb.init` tries for so long to reach the server, and a run's end to send what is left: a lost
# network costs a training a minute, not its end. What was not sent is kept, for `wandb sync`.
INIT_SECONDS = 20
FINISH_SECONDS = 60


def private_settings(*, save_code: bool = False) -> dict[str, Any]:
    """Settings by which wandb collects nothing by itself.

    By default it records the command line, the environment's packages and git's remotes, the
    user's name, what is printed, and reads the main script: any may hold a key.
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
) -> Any:
    """Begin a run, online if there is an account and the server answers, else offline.

    Args:
        folder: Its files go to `<folder>/wandb`.
        config: Its settings.
        group: Its group.
        name: Its name.
        job_type: What kind of run it is.
        save_code: Whether the main script is sent too.

    Returns:
        The `wandb.Run`, which is `wandb.run` then.
    """
    mode = wandb_mode()
    settings = private_settings(save_code=save_code) | {"root_dir": str(folder.absolute())}
    named = {"WANDB_RUN_ID", "WANDB_SWEEP_ID"} & set(os.environ)  # which has a name already
    run_id = None if named else secrets.token_hex(4)
    given = {"config": dict(config), "group": group, "name": name, "job_type": job_type}
    if mode not in ("offline", "disabled"):
        try:
            return _init(given | {"id": run_id}, settings | {"mode": mode, "quiet": True})
        except Exception as error:
            problem = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(
                f"W&B cannot be reached ({problem}): the run is kept offline", stacklevel=2
            )
            mode = "offline"
            if run_id is not None:  # an empty file, which `wandb sync` would send as a run
                for left in (folder / "wandb").glob(f"run-*-{run_id}"):
                    shutil.rmtree(left, ignore_errors=True)
    return _init(given, settings | {"mode": mode, "silent": True})


def _init(given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    # A sweep has its own project, and wandb warns of another.
    named = {"WANDB_PROJECT", "WANDB_SWEEP_ID"} & set(os.environ)
    return wandb.init(
        project=None if named else PROJECT, settings=wandb.Settings(**settings), **given
    )
