"""`last_step`: how far event files of TensorBoard are; of each event only the head is read."""

import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# A record: its length, a checksum of that, the event, and a checksum of it
# (tensorflow/core/lib/io/record_writer.h).
_LENGTH = struct.Struct("<Q4x")
_CHECKSUM = 4
# An event begins with the time, and has then the step, unless that is 0, and what it is of: fields
# 1, 2 and 5, a summary, of tensorflow/core/util/event.proto, which is written in their order.
_TIME, _STEP, _SUMMARY = b"\x09", b"\x10", b"\x2a"
_TIME_BYTES = 9
_HEAD = 32
_LAST_BYTE = 0x7F  # of a number: all bytes before it are larger


def last_step(folder: Path) -> int:
    """Return the last step in the event files of a folder; -1 without any.

    The newest files, of one second, are read alone, unless they have nothing of a step after 0:
    each process continues where the one before it ended.

    Args:
        folder: May be missing. Files of a process that was killed may end amid a record.
    """
    last = -1
    paths = sorted(folder.glob("events.out.tfevents.*"), key=_second, reverse=True)
    for _, of_one_second in itertools.groupby(paths, key=_second):
        for path in of_one_second:
            with path.open("rb") as file:
                last = max([last, *_steps(file)])
        if last > 0:
            break
    return last


def _second(path: Path) -> int:
    """When a file was made, as its name says: `events.out.tfevents.<second>.<host>.<process>…`."""
    second = path.name.split(".")[3]
    return int(second) if second.isdecimal() else 0


def _steps(file: IO[bytes]) -> Iterator[int]:
    """The steps of a file's summaries; all else in it, such as histograms, is skipped."""
    begin, size = 0, os.fstat(file.fileno()).st_size
    while begin + _LENGTH.size <= size:
        file.seek(begin)
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        begin += _LENGTH.size + length + _CHECKSUM
        if begin > size:
            return
        step = _step_of_summary(file.read(min(length, _HEAD)))
        if step is not None:
            yield step


def _step_of_summary(head: bytes) -> int | None:
    """The step of an event that is a summary, from the event's first bytes."""
    at, step = _TIME_BYTES if head[:1] == _TIME else 0, 0
    if head[at : at + 1] == _STEP:
        number = head[at + 1 :]
        length = next((index for index, byte in enumerate(number, 1) if byte <= _LAST_BYTE), 0)
        step = sum((byte & _LAST_BYTE) << 7 * index for index, byte in enumerate(number[:length]))
        at += 1 + length
    return step if head[at : at + 1] == _SUMMARY else None
