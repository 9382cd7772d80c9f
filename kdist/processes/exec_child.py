"""Start of a child process: sets its cores, ties its life to the parent, and runs the program.

Run as `python -I exec_child.py PARENT_PID CORES COMMAND…`. The file imports only the standard
library: with `-I`, Python ignores the user's folders of packages and `PYTHONPATH`.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command; an empty list of cores keeps the parent's cores."""
    parent, cores, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # the parent ended before `prctl`
        sys.exit(1)
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    os.execv(command[0], command)  # noqa: S606 - the caller's own program


if __name__ == "__main__":
    main()
