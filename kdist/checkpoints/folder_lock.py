"""`FolderLock`: one process at a time writes into a folder."""

import errno
import fcntl
import json
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from typing import IO

from ..errors import UserError

_NAME = ".lock"
# What file systems without locks answer.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)

_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


class FolderLock:
    """Holds a folder until it is released or the process ends, however that may be.

    Args:
        folder: An existing folder.

    Attributes:
        is_supported: Whether the file system can keep other processes out.

    Raises:
        UserError: Another process, or this one, holds the folder; the message says which.
        OSError: The lock's file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.is_supported = True
        self._file: IO[str] | None = open(folder / _NAME, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = _holder(self._file)
                self.release()
                raise UserError(
                    f"{folder} is in use by {holder}: wait until it has ended, or pass another"
                    " folder"
                ) from error
            if error.errno not in _UNSUPPORTED:
                self.release()
                raise
            self.is_supported = False
        _write_holder(self._file)
        _held.add(self)

    def release(self) -> None:
        """Let others have the folder; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_abandoned(folder: Path) -> bool:
    """Whether the process of this machine that held a folder last has ended, and none holds it.

    Args:
        folder: One that was never held is not abandoned, and one whose last process was on another
            machine is not known to be: its lock may not be seen from here.
    """
    try:
        with open(folder / _NAME, encoding="utf-8") as file:
            if json.loads(file.read())["host"] != socket.gethostname():
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError, KeyError, TypeError):  # held, or it is just being written
        return False
    return True


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()  # of the child's own descriptor: the parent holds the folder on


# A forked child would hold the folder for as long as it lives, after the parent was killed too.
os.register_at_fork(after_in_child=_release_in_child)


def _write_holder(file: IO[str]) -> None:
    file.truncate(0)
    holder = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv)[:200],
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    file.write(json.dumps(holder))
    file.flush()


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read())
        return (
            f"process {holder['process']} on {holder['host']} ({holder['command']}) since"
            f" {holder['since']}"
        )
    except (ValueError, KeyError, TypeError):  # it is just being written
        return "another process"
