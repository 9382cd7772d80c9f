"""What W&B finds on this machine: the program `python -m kdist.doctor.wandb_facts`.

In a process of its own, as a name server that does not answer cannot be interrupted.
"""

import contextlib
import json
import os
import socket
import sys
import urllib.parse

_CONNECT_SECONDS = 3


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
