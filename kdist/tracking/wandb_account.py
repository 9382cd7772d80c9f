"""Whether a W&B run can be online, without ever asking."""

import os
from collections.abc import Mapping

from ..errors import UserError

_MODES = ("", "online", "offline", "shared", "disabled")
_OLDER = {"run": "online", "dryrun": "offline"}


def asked_mode(environment: Mapping[str, str] = os.environ) -> str:
    """What `WANDB_MODE` asks for; `""` without it.

    Raises:
        UserError: It is none of wandb's modes.
    """
    asked = environment.get("WANDB_MODE", "")
    mode = _OLDER.get(asked, asked)
    if mode not in _MODES:
        raise UserError(
            f"WANDB_MODE is one of {', '.join(_MODES[1:])}; received {asked}: set another, or none"
        )
    return mode


def wandb_mode(environment: Mapping[str, str] = os.environ) -> str:
    """`"online"`, `"offline"`, `"shared"` or `"disabled"`: as asked; else by the account.

    An account is what wandb itself finds: `WANDB_API_KEY`, an identity token, the netrc file, its
    settings.

    Raises:
        UserError: As `asked_mode`.
    """
    mode = asked_mode(environment)
    if mode in ("offline", "disabled"):
        return mode
    return (mode or "online") if has_account() else "offline"


def has_account() -> bool:
    """Whether wandb finds credentials; those that will not do count as none."""
    import wandb

    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.AuthenticationError as error:
        wandb.termwarn(f"{error}; the run is kept offline")
        return False
