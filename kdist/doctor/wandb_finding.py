"""W&B: is there an account, and can its server be reached?"""

import json
import sys

from .finding import Finding
from .machine import Machine

_COMMAND = (sys.executable, "-m", "kdist.doctor.wandb_facts")
_NAME = "W&B"
_REINSTALL = "fix it, or pip install --force-reinstall wandb"
_OFFLINE = "set WANDB_MODE=offline, and send the runs later with `wandb sync`"


def find_wandb(machine: Machine) -> Finding:
    """Are W&B's runs online, and if so, is its server there?"""
    try:
        ended = machine.run(_COMMAND)
    except TimeoutError:
        return Finding(_NAME, "slow", "no answer: the network or its name server hangs", _OFFLINE)
    lines = ended.text.splitlines() if ended is not None else []
    if ended is None or ended.code != 0 or not lines:
        last = lines[-1] if lines else "no output"
        # A wrong WANDB_MODE's text says itself what to do.
        remedy = "" if "UserError: " in last else _REINSTALL
        return Finding(_NAME, "broken", last.partition("Error: ")[2] or last, remedy)
    if not ended.answer:
        return Finding(_NAME, "broken", lines[-1], _REINSTALL)
    return judge_wandb(**json.loads(ended.answer))


def judge_wandb(*, asked: str, mode: str, host: str, error: str = "") -> Finding:
    """Judge what W&B says.

    Args:
        asked: `WANDB_MODE`; empty if it is not set.
        mode: Of a run.
        host: The server's name.
        error: Why it cannot be reached, if so.
    """
    if mode in ("offline", "disabled"):
        if asked:
            return Finding(_NAME, "absent", f"WANDB_MODE={asked}")
        return Finding(
            _NAME, "absent", "no account: runs are kept here", "`wandb login`, if you want one"
        )
    if error:
        return Finding(
            _NAME, "slow", f"an account, but {host} cannot be reached: {error}", _OFFLINE
        )
    return Finding(_NAME, "good", f"an account, and {host} can be reached (the key is not checked)")
