"""Becomes a worker: takes its cores, ends with its launcher, and runs the user's program.

A file to run, `python -I exec_worker.py LAUNCHER_PID CORES COMMAND…`, that needs Python alone:
whatever the launcher has imported must not reach the program.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command."""
    launcher, cores, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it ended before
        sys.exit(1)
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    os.execv(command[0], command)  # noqa: S606 - the user's own program


if __name__ == "__main__":
    main()
