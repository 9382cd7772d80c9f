"""`FolderLock`: keeps a second process out of a folder."""

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

_LOCK = ".lock"
# Error numbers of file systems without locks.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)

_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


class FolderLock:
    """Locks an existing folder until `release`, or until the process ends in any way.

    On a file system without locks, no process is kept out.

    Raises:
        UserError: Another process, or this process, holds the folder; the message names the holder.
        OSError: The lock file cannot be written or locked.
    """

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] | None = open(folder / _LOCK, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = _read_holder(self._file)
                self.release()
                raise UserError(
                    f"{folder} is in use by {holder}: wait until it has ended, or pass another"
                    " folder"
                ) from error
            if error.errno not in _UNSUPPORTED:
                self.release()
                raise
        _write_holder(self._file)
        _held.add(self)

    def release(self) -> None:
        """Unlock the folder; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_abandoned(folder: Path) -> bool:
    """Whether a folder's last holder ran on this machine, and no process holds the folder now.

    The lock of a process on another machine may be invisible here.
    """
    try:
        with open(folder / _LOCK, encoding="utf-8") as file:
            if json.loads(file.read())["host"] != socket.gethostname():
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError, KeyError, TypeError):  # held, or the holder is being written
        return False
    return True


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()  # closes the child's descriptor; the parent keeps the lock


# Without this release, a forked child would keep the lock after its parent was killed.
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


def _read_holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read())
        return (
            f"process {holder['process']} on {holder['host']} ({holder['command']}) since"
            f" {holder['since']}"
        )
    except (ValueError, KeyError, TypeError):  # the holder is being written
        return "another process"
