"""Whether a W&B run can be online, without ever asking."""

import os
from collections.abc import Mapping

import wandb

from ..errors import UserError

_MODES = {"run": "online", "dryrun": "offline"}  # wandb's older names


def wandb_mode(environment: Mapping[str, str] = os.environ) -> str:
    """`"online"`, `"offline"` or `"disabled"`: as `WANDB_MODE` says; without it by the account.

    An account is what wandb itself finds: `WANDB_API_KEY`, an identity token, the netrc file, its
    settings.

    Raises:
        UserError: `WANDB_MODE` is none of wandb's modes.
    """
    asked = environment.get("WANDB_MODE", "")
    mode = _MODES.get(asked, asked)
    if mode not in ("", "online", "offline", "shared", "disabled"):
        raise UserError(f"WANDB_MODE is one of online, offline, shared, disabled; received {asked}")
    if mode in ("offline", "disabled"):
        return mode
    return (mode or "online") if has_account() else "offline"


def has_account() -> bool:
    """Whether wandb finds credentials; those that will not do count as none."""
    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.AuthenticationError as error:
        wandb.termwarn(f"{error}; the run is kept offline")
        return False
