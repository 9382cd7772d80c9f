"""W&B's account and server: also the program `python -m kdist.doctor.wandb_access`.

The server is asked for in a process of its own, as a name server that does not answer cannot be
interrupted.
"""

import contextlib
import json
import os
import socket
import sys
import urllib.parse

from .finding import Finding
from .machine import Machine

_COMMAND = (sys.executable, "-m", "kdist.doctor.wandb_access")
_CONNECT_SECONDS = 3
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


def main() -> None:
    """Print the mode of runs, and whether the server can be reached."""
    with contextlib.redirect_stdout(sys.stderr):
        from ..tracking.wandb_account import asked_mode, wandb_mode

        facts = {"asked": asked_mode(), "mode": wandb_mode()}
        host = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
        facts["host"] = host.hostname or ""
        if facts["mode"] in ("online", "shared"):
            facts["error"] = connect(host.hostname or "", host.port or 443)
    print(json.dumps(facts), flush=True)


def connect(host: str, port: int) -> str:
    """Connect to a server; returns why it cannot be reached, empty if it can."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


if __name__ == "__main__":
    main()
