"""Becomes a child process: takes its cores, ends with its parent, and runs the program.

A file to run, `python -I exec_child.py PARENT_PID CORES COMMAND…`, that needs Python alone:
whatever the parent has imported must not reach the program.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command; no cores leave those of the parent."""
    parent, cores, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it ended before
        sys.exit(1)
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    os.execv(command[0], command)  # noqa: S606 - the caller's own program


if __name__ == "__main__":
    main()
