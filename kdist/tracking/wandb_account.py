"""Find out whether a W&B run can be online, without prompting the user."""

import os
from collections.abc import Mapping

from ..errors import UserError

_MODES = ("", "online", "offline", "shared", "disabled")
_OLDER = {"run": "online", "dryrun": "offline"}


def asked_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return the mode that `WANDB_MODE` requests; `""` if it is not set.

    Raises:
        UserError: The value is not a mode of wandb.
    """
    asked = environment.get("WANDB_MODE", "")
    mode = _OLDER.get(asked, asked)
    if mode not in _MODES:
        raise UserError(
            f"WANDB_MODE has to be one of {', '.join(_MODES[1:])}; received {asked}: change or"
            " unset it"
        )
    return mode


def wandb_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return the mode of a run: `"online"`, `"offline"`, `"shared"` or `"disabled"`.

    Without `WANDB_MODE` a run is online if wandb finds an account: `WANDB_API_KEY`, an identity
    token, the netrc file, or wandb's settings. A run without an account is offline, unless
    `WANDB_MODE` is `disabled`.

    Raises:
        UserError: As in `asked_mode`.
    """
    mode = asked_mode(environment)
    if mode in ("offline", "disabled"):
        return mode
    return (mode or "online") if has_account() else "offline"


def has_account() -> bool:
    """Whether wandb finds credentials, without asking its server; warn if wandb rejects them."""
    import wandb

    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.AuthenticationError as error:
        wandb.termwarn(f"{error}; the run is saved offline")
        return False
