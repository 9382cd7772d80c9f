"""How the launchers of all machines agree who goes on when workers are lost (`--elastic`).

The first machine's launcher decides. Each of the others keeps a connection to it, over which it
says how its workers have ended and how many it can start, and hears how many all machines start. A
machine is lost when its connection closes, or when it says nothing for too long after workers of
another one have failed. If the network falls apart, only the first machine's part goes on: the
others end their workers when their connection closes.
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

from ..errors import LOST_CODE, UserError
from .launch_options import MOST_WORKERS
from .workers import MESSAGES

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 65536  # of a line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """What a machine's launcher says before workers are started.

    Attributes:
        workers: How many it can start.
        lost: How many of the last ones it has lost.
        code: The exit code of the last ones.
    """

    workers: int
    lost: int = 0
    code: int = 0

    @classmethod
    def of(cls, message: dict[str, Any]) -> "Ready":
        """Return what another launcher has sent.

        Raises:
            ValueError: It is something else.
        """
        own = {field.name: message.get(field.name) for field in dataclasses.fields(cls)}
        if any(type(value) is not int for value in own.values()):
            raise ValueError(f"expected numbers, received {message}")
        found = cls(**own)  # type: ignore[arg-type]
        if not (0 <= found.workers <= MOST_WORKERS and found.lost >= 0):
            raise ValueError(f"received {message}")
        return found


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
        self._replaced: set[int] = set()  # whose launcher was started again, and lost its workers
        self._is_closed = False
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
        if not self._wait(own):
            return None
        with self._lock:
            said = dict(self._ready)
            for rank in self._replaced & said.keys():
                said[rank] = dataclasses.replace(said[rank], lost=1)
            self._replaced.clear()
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
            self._is_closed = True
            for rank in self._ready:
                _send(self._connections[rank], {"code": code})
            for one in [self._listener, *self._connections.values()]:
                if one is not None:
                    _close(one)

    def _wait(self, own: Ready) -> bool:
        """Wait for all that are expected; return whether no signal came meanwhile.

        Workers that end well may do so at any time; after a failure all end soon.
        """
        seconds = self._start_seconds if self._expected is None else self._silence_seconds
        since = time.monotonic()
        while missing := self._missing():
            self.code = _ending_code(self._events)
            if self.code is not None:
                return False
            with self._lock:
                has_failed = any(one.code or one.lost for one in (own, *self._ready.values()))
            if self._expected is not None and not has_failed:
                since = time.monotonic()
            if time.monotonic() > since + seconds:
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
        while not self._is_closed:
            try:
                connection, _ = listener.accept()
            except OSError:  # it is closed, or there are too many connections
                time.sleep(_POLL_SECONDS)
                continue
            _notice_silence(connection, self._silence_seconds)
            threading.Thread(target=self._listen_to, args=(connection,), daemon=True).start()

    def _listen_to(self, connection: socket.socket) -> None:
        rank = -1
        with contextlib.suppress(ValueError):
            for message in _messages(connection):
                own = Ready.of(message)
                if message.get("machine") not in range(1, len(self._names)):
                    break
                rank = int(message["machine"])
                with self._lock:
                    before = self._connections.get(rank)
                    if before is not None and before is not connection:  # it was started again
                        _close(before)
                        self._replaced.add(rank)
                    self._connections[rank] = connection
                    self._ready[rank] = own
        _close(connection)
        with self._lock:
            if self._connections.get(rank) is connection:
                del self._connections[rank]
                self._ready.pop(rank, None)
                self._replaced.add(rank)


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
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._waits = True
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
        self._waits = True
        _send(connection, {"machine": self._rank, **dataclasses.asdict(own)})
        since, has_said = time.monotonic(), False
        while True:
            with contextlib.suppress(queue.Empty):
                return self._start(self._answers.get_nowait(), own)
            if not has_said and time.monotonic() - since > _PATIENCE_SECONDS:
                has_said = True
                say(
                    f"waits for the launcher of {self._first}, which says when this machine takes"
                    " part"
                )
            self.code = _ending_code(self._events)
            if self.code is not None:
                return None

    def _start(self, answer: dict[str, Any] | None, own: Ready) -> Start | None:
        """Return what the first machine has answered; `None` if that is an end."""
        answer = answer or {}
        if type(answer.get("code")) is int:
            self.code = answer["code"]
            return None
        try:
            start = Start(workers=[*map(int, answer["workers"])], attempt=int(answer["attempt"]))
            self._waits = False
            return start
        except (KeyError, TypeError, ValueError):
            say(
                f"the launcher of {self._first} at port {self._port} has ended, or speaks to"
                " another launcher of this rank"
            )
            self.code = own.code or LOST_CODE
            return None

    def _read(self, connection: socket.socket) -> None:
        for message in _messages(connection):
            self._answers.put(message)
        self._answers.put(None)
        if not self._waits:
            self._events.put(signal.SIGTERM)  # ends the workers: others may take their place

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
            _notice_silence(found, self._silence_seconds)
            threading.Thread(target=self._read, args=(found,), daemon=True).start()
            return found
        self.code = code
        return None


def _ending_code(events: "queue.SimpleQueue[Any]") -> int | None:
    """Wait a moment for a signal that asks to end; return the exit code after it."""
    try:
        event = events.get(timeout=_POLL_SECONDS)
    except queue.Empty:
        return None
    is_ending = isinstance(event, signal.Signals) and event not in MESSAGES
    return 128 + event if is_ending else None


def say(line: str) -> None:
    """Print what a launcher does."""
    print(f"kdist launch: {line}", file=sys.stderr, flush=True)


def _notice_silence(connection: socket.socket, seconds: float) -> None:
    """Let a connection end when nothing comes back for so long, as after a network was cut."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connection.setsockopt(socket.IPPROTO_TCP, option, max(1, round(seconds / 4)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds))


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whose loss is noticed where it is read
        connection.sendall(f"{json.dumps(message)}\n".encode())


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield what the other side says, until it is closed, or says something else."""
    received = b""
    with contextlib.suppress(OSError, ValueError, RecursionError):
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
