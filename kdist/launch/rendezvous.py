"""How the launchers of all machines agree who goes on when workers are lost (`--elastic`).

The first machine's launcher decides. Each of the others keeps a connection to it, over which it
says how many workers it can start, and hears how many all machines start. A machine is lost when
its connection closes, or when it says nothing for too long after its workers should have ended.
If the network falls apart, only the first machine's part goes on.
"""

import contextlib
import dataclasses
import json
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import UserError

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 65536  # of a line
_MESSAGES = (signal.SIGUSR1, signal.SIGUSR2)  # which do not ask a program to end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """What a machine's launcher says before workers are started.

    Attributes:
        workers: How many it can start.
        lost: How many of the last ones it has lost.
    """

    workers: int
    lost: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What the first machine's launcher answers.

    Attributes:
        workers: How many each machine starts.
        attempt: How often workers were started before.
    """

    workers: list[int]
    attempt: int


Choose = Callable[[list[Ready | None]], list[int] | None]
"""Given what each machine has said (`None`: it is lost), returns how many workers each of them
starts; `None` if none does."""


def fitting(available: Sequence[int], *, replicas: int, shards: int | None) -> list[int]:
    """Return how many workers each machine starts, so that their replicas divide the shards.

    Args:
        available: How many each can start.
        replicas: Of each worker.
        shards: Of each batch; `None` if any number of replicas will do.

    Example:
        >>> fitting([2, 1], replicas=1, shards=4)
        [2, 0]
    """
    found = list(available)
    while shards is not None and sum(found) > 1 and shards % (sum(found) * replicas):
        found[max(at for at, count in enumerate(found) if count)] -= 1
    return found


class FirstMachine:
    """The side that decides.

    Args:
        names: Of the machines, this one first; if it is alone, nobody is asked.
        port: On which to listen.
        events: Receives the signals that this process gets.
        start_seconds: How long to wait for all machines at the start.
        silence_seconds: How long to wait for one that says nothing, later.

    Attributes:
        code: The exit code after a signal that came while this machine waited.

    Raises:
        UserError: The port is in use.
    """

    code: int | None = None

    def __init__(
        self,
        names: Sequence[str],
        port: int,
        events: "queue.SimpleQueue[Any]",
        *,
        start_seconds: float,
        silence_seconds: float,
    ) -> None:
        self._names, self._port, self._events = names, port, events
        self._start_seconds, self._silence_seconds = start_seconds, silence_seconds
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._ready: dict[int, Ready] = {}  # of those that wait for an answer
        self._expected: set[int] | None = None  # all, the first time
        self._attempts = 0
        self._listener: socket.socket | None = None
        if len(names) > 1:
            family = socket.AF_INET6 if ":" in names[0] else socket.AF_INET
            try:
                self._listener = socket.create_server(("", port), family=family)
            except OSError as error:
                raise UserError(
                    f"cannot use port {port} ({error.strerror}), at which the launchers meet: pass"
                    " another --port, the same on all machines"
                ) from error
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def agree(self, own: Ready, choose: Choose) -> Start | None:
        """Wait for the others, and tell them what is chosen.

        Args:
            own: What this machine says.
            choose: Chooses.

        Returns:
            What is to be started; `None` for nothing, also after a signal that asks to end.

        Raises:
            UserError: At the start a machine has not come.
        """
        if not self._wait():
            return None
        with self._lock:
            said = dict(self._ready)
            found = choose([own, *(said.get(rank) for rank in range(1, len(self._names)))])
            if found is None:
                return None
            start = Start(workers=found, attempt=self._attempts)
            self._attempts += 1
            self._expected = {rank for rank in said if found[rank]}
            for rank in self._expected:  # the others wait until there is something to do for them
                del self._ready[rank]
                _send(self._connections[rank], dataclasses.asdict(start))
        return start

    def close(self, code: int) -> None:
        """End the run, with an exit code, on the machines that wait."""
        with self._lock:
            for rank in self._ready:
                _send(self._connections[rank], {"code": code})
            for one in [self._listener, *self._connections.values()]:
                if one is not None:
                    _close(one)

    def _wait(self) -> bool:
        """Wait for all that are expected; return whether no signal came meanwhile."""
        seconds = self._start_seconds if self._expected is None else self._silence_seconds
        until = time.monotonic() + seconds
        while missing := self._missing():
            self.code = _ending_code(self._events)
            if self.code is not None:
                return False
            if time.monotonic() > until:
                break
        if missing and self._expected is None:
            raise UserError(
                f"the launchers of {', '.join(self._names[rank] for rank in missing)} have not come"
                f" within {seconds:.0f} seconds: are they started there, and can they reach"
                f" {self._names[0]} at port {self._port}?"
            )
        with self._lock:
            for rank in missing:
                _close(self._connections.pop(rank))
        return True

    def _missing(self) -> list[int]:
        with self._lock:
            if self._expected is None:
                return [rank for rank in range(1, len(self._names)) if rank not in self._ready]
            expected = self._expected & self._connections.keys()
            return sorted(expected - self._ready.keys())

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._listen_to, args=(connection,), daemon=True).start()

    def _listen_to(self, connection: socket.socket) -> None:
        rank: Any = None
        for message in _messages(connection):
            rank, workers, lost = (message.get(name, -1) for name in ("machine", "workers", "lost"))
            if rank not in range(1, len(self._names)) or {type(workers), type(lost)} != {int}:
                break
            with self._lock:
                before = self._connections.get(rank)
                if before is not None and before is not connection:  # it was started again
                    _close(before)
                self._connections[rank] = connection
                self._ready[rank] = Ready(workers=workers, lost=lost)
        _close(connection)
        with self._lock:
            if self._connections.get(rank) is connection:
                del self._connections[rank]
                self._ready.pop(rank, None)


class OtherMachine:
    """The side that is told.

    Args:
        first: The first machine's name.
        port: On which it listens.
        rank: Of this machine.
        events: Receives the signals that this process gets.
        start_seconds: How long to try to reach the first machine.
        silence_seconds: After which a silent network is a lost connection.

    Attributes:
        code: The exit code with which the first machine has ended the run while this one waited, or
            that after a signal.
    """

    def __init__(
        self,
        first: str,
        port: int,
        rank: int,
        events: "queue.SimpleQueue[Any]",
        *,
        start_seconds: float,
        silence_seconds: float,
    ) -> None:
        self._first, self._port, self._rank, self._events = first, port, rank, events
        self._start_seconds, self._silence_seconds = start_seconds, silence_seconds
        self._connection: socket.socket | None = None
        self.code: int | None = None

    def agree(self, own: Ready, _: Choose) -> Start | None:
        """Tell the first machine, and return what it has chosen.

        Args:
            own: What this machine says.

        Returns:
            What is to be started; `None` if the first machine has ended, or after a signal that
            asks to end.

        Raises:
            UserError: The first machine cannot be reached.
        """
        connection = self._connection = self._connection or self._connect()
        if connection is None:
            return None
        _send(connection, {"machine": self._rank, **dataclasses.asdict(own)})
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        reader = threading.Thread(
            target=lambda: answers.put(next(_messages(connection), None)), daemon=True
        )
        reader.start()
        since, has_said = time.monotonic(), False
        while reader.is_alive():
            if not has_said and time.monotonic() - since > _PATIENCE_SECONDS:
                has_said = True
                print(
                    f"kdist launch: waits for the launcher of {self._first}, which says when this"
                    " machine takes part",
                    file=sys.stderr,
                    flush=True,
                )
            self.code = _ending_code(self._events)
            if self.code is not None:
                return None
        answer = answers.get() or {"code": None}
        if "code" in answer:
            self.code = answer["code"]
            return None
        return Start(**answer)

    def close(self, _: int) -> None:
        """Go: the others go on without this machine."""
        if self._connection is not None:
            _close(self._connection)

    def _connect(self) -> socket.socket | None:
        until = time.monotonic() + self._start_seconds
        while (code := _ending_code(self._events)) is None:
            try:
                found = socket.create_connection((self._first, self._port), timeout=5)
            except OSError as error:
                if time.monotonic() > until:
                    raise UserError(
                        f"cannot reach the launcher of {self._first} at port {self._port}"
                        f" ({error}): is it started there, and can the machines reach each other?"
                    ) from error
                continue
            found.settimeout(None)
            seconds = max(1, round(self._silence_seconds / 4))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                found.setsockopt(socket.IPPROTO_TCP, option, seconds)
            return found
        self.code = code
        return None


def _ending_code(events: "queue.SimpleQueue[Any]") -> int | None:
    """Wait a moment for a signal that asks to end; return the exit code after it."""
    try:
        event = events.get(timeout=_POLL_SECONDS)
    except queue.Empty:
        return None
    is_ending = isinstance(event, signal.Signals) and event not in _MESSAGES
    return 128 + event if is_ending else None


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whose loss is noticed where it is read
        connection.sendall(f"{json.dumps(message)}\n".encode())


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield what the other side says, until it is closed, or says something else."""
    received = b""
    with contextlib.suppress(OSError, ValueError):
        while part := connection.recv(_MOST_BYTES):
            received += part
            while b"\n" in received:
                line, _, received = received.partition(b"\n")
                message = json.loads(line)
                if not isinstance(message, dict):
                    return
                yield message
            if len(received) > _MOST_BYTES:
                return


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # wakes the thread that reads it
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
