"""Run several trials at once: KerasTuner's chief and its workers, each in its own process."""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import UserError
from ..launch.child import Child, Share, Verdict
from ..launch.cluster import LOOPBACK, bound_port
from ..launch.shares import visible_cores, visible_gpus
from ..runs.text import count
from .chief_or_worker import role_variables
from .pinning import pin_workers
from .search import Search
from .search_folder import SearchFolder
from .time_left import Pace

_CHIEF = "chief"
_POLL_SECONDS = 2.0
# What workers get to end a step and to save their trials.
_GRACE_SECONDS = 30.0

#: A trial and why its process ended, as `trial=reason`, for the process that replaces it.
ENDED_BY = "KDIST_TUNE_ENDED_BY"


def running_marker(folder: Path, tuner_id: str) -> Path:
    """Return the path of the file that names a worker's trial, in case its process dies."""
    return folder / f"{tuner_id}.running"


def run_parallel(
    search: Search, folder: SearchFolder, *, announce: Callable[[str], None] = print
) -> None:
    """Run the remaining trials, several at once, each on its own devices.

    A worker that dies is replaced, and its trial is recorded as failed. However this ends, workers
    are asked to save their trials before they are killed.

    Args:
        search: The settings, with `per_trial`.
        folder: The folder of the search, open.
        announce: Called with lines about the processes.

    Raises:
        UserError: Devices or port are invalid, or the chief or every worker ended too early. The
            same command then resumes the search, if there is anything to resume.
        KeyboardInterrupt: Ctrl-C or the like; another one kills the workers at once.
    """
    pins = pin_workers(
        per_trial=search.per_trial or 1,
        devices=search.devices,
        gpus=visible_gpus(os.environ),
        cores=visible_cores(),
    )
    port = free_port(search.port)
    announce(f"Trials at once: {len(pins)}, devices per trial: {search.per_trial}")
    for marker in folder.trials.glob("*.running"):
        marker.unlink()
    _Processes(folder, port, pins, announce, search.max_trials).run()


class _Processes:
    """The processes of one search: a chief and its workers."""

    def __init__(
        self,
        folder: SearchFolder,
        port: int,
        pins: list[Share],
        announce: Callable[[str], None],
        total: int | None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.announce = announce
        self.pins = {f"worker{index}": pin for index, pin in enumerate(pins)}
        self.running: dict[str, Child] = {}
        self._ended: queue.Queue[str] = queue.Queue()
        self._lost = ""  # how a worker ended that was not replaced
        self._total = total
        self._trials = self._ended_trials()
        self._pace = Pace(done=self._trials)

    def run(self) -> None:
        """Start the processes, and return when all workers have ended."""
        try:
            self._start(_CHIEF, Share(gpus=("-1",)), {})
            for name, pin in self.pins.items():
                self._start(name, pin, {})
            while set(self.running) - {_CHIEF}:
                name = self._next_ended()
                child = self.running.pop(name)
                child.kill()  # what it has started
                verdict = child.verdict()
                if name == _CHIEF and not verdict.cause:
                    return  # the chief waits for every worker that has requested a trial
                if name == _CHIEF:
                    raise UserError(
                        f"the chief of the search ended with {verdict.how}: fix the errors"
                        " above, if any, and run the same command again"
                    )
                if verdict.cause:
                    self._replace(name, verdict)
            if self._lost and self._has_open_trials():
                raise UserError(
                    f"a worker ended amid a trial, with {self._lost}: fix the errors"
                    " above, and run the same command to resume"
                )
        except KeyboardInterrupt:
            self.announce("Saving the trials that are being trained; Ctrl-C again ends at once")
            raise
        finally:
            self._end_all()

    def _end_all(self) -> None:
        """End the processes, those of trials once these are saved; at once at a second signal."""
        workers = [child for name, child in self.running.items() if name != _CHIEF]
        try:
            for child in workers:
                child.send(signal.SIGTERM)
            until = time.monotonic() + _GRACE_SECONDS
            with contextlib.suppress(TimeoutError):
                for child in workers:
                    child.wait(max(0.0, until - time.monotonic()))
        finally:
            for child in self.running.values():
                child.kill()
                for part in self.folder.path.rglob(f".{child.pid}.*"):  # of `atomic_path`
                    part.unlink(missing_ok=True)

    def _next_ended(self) -> str:
        """Wait for a process to end, and say meanwhile how far the search is."""
        while True:
            try:
                return self._ended.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                self._announce_progress()

    def _announce_progress(self) -> None:
        trials = self._ended_trials()
        if trials == self._trials:
            return
        self._trials = trials
        left = self._pace.time_left(trials, total=self._total)
        done = count(trials, "trial")
        if self._total is not None:
            done = f"{trials} of {count(self._total, 'trial')}"
        self.announce(done + (f", {left}" if left else ""))

    def _has_open_trials(self) -> bool:
        oracle = self.folder.read("trials/oracle.json") or {}
        return len(oracle.get("start_order", ())) > len(oracle.get("end_order", ()))

    def _ended_trials(self) -> int:
        return len((self.folder.read("trials/oracle.json") or {}).get("end_order", ()))

    def _start(self, name: str, pin: Share, more: Mapping[str, str]) -> None:
        environment = {
            **role_variables(name, ip=LOOPBACK, port=self.port),
            "no_grpc_proxy": LOOPBACK,
            **more,
        }
        child = Child(command(self.folder.path), share=pin, environment=environment)
        self.running[name] = child

        def wait() -> None:
            child.wait()
            self._ended.put(name)

        threading.Thread(target=wait, daemon=True).start()

    def _replace(self, name: str, verdict: Verdict) -> None:
        marker = running_marker(self.folder.trials, name)
        if not marker.exists():  # the trial is not the cause, if there was one
            self._lost = verdict.how
            self.announce(f"{name} ended with {verdict.how}")
            if not set(self.running) - {_CHIEF}:
                raise UserError(
                    f"every worker of the search ended, the last with {verdict.how}: fix the"
                    " errors above, and run the same command again"
                )
            return
        trial = marker.read_text(encoding="utf-8")
        reason = f"its process ended with {verdict.how}"
        if verdict.cause == "memory":
            reason = verdict.line
        self.announce(f"{name}: trial {trial}: {reason}; starting another")
        marker.unlink()
        self._start(name, self.pins[name], {ENDED_BY: f"{trial}={reason}"})


def command(folder: Path) -> list[str]:
    """Return the command line of a chief or worker process."""
    return [sys.executable, "-m", "kdist.tuning.worker", str(folder)]


def free_port(port: int | None) -> int:
    """Return a free port of the loopback interface: `port`, or any if it is `None`.

    Raises:
        UserError: `port` is in use or invalid.
    """
    # gRPC itself would share a port with another chief.
    try:
        return bound_port(LOOPBACK, port or 0)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot use port {port} ({error}): pass another --port, or none for a free one"
        ) from error
