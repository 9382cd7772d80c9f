"""Run several trials at once: KerasTuner's chief and its workers, each in its own process."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import UserError
from ..launch.cluster import LOOPBACK, bound_port
from ..launch.shares import visible_cores, visible_gpus
from ..runs.text import count
from ..signals import hold_signals
from .chief_or_worker import role_variables
from .pinning import Pin, pin_workers
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
        pins: list[Pin],
        announce: Callable[[str], None],
        total: int | None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.announce = announce
        self.pins = {f"worker{index}": pin for index, pin in enumerate(pins)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: queue.Queue[tuple[str, int]] = queue.Queue()
        self._lost_code = 0
        self._total = total
        self._trials = self._ended_trials()
        self._pace = Pace(done=self._trials)

    def run(self) -> None:
        """Start the processes, and return when all workers have ended."""
        try:
            self._start(_CHIEF, Pin(gpus="-1", cores=()), {})
            for name, pin in self.pins.items():
                self._start(name, pin, {})
            while set(self.running) - {_CHIEF}:
                name, code = self._next_ended()
                del self.running[name]
                if name == _CHIEF and code == 0:
                    return  # the chief waits for every worker that has requested a trial
                if name == _CHIEF:
                    raise UserError(
                        f"the chief of the search ended with exit code {code}: fix the errors"
                        " above, if any, and run the same command again"
                    )
                if code:
                    self._replace(name, code)
            if self._lost_code and self._has_open_trials():
                raise UserError(
                    f"a worker ended amid a trial, with exit code {self._lost_code}: fix the errors"
                    " above, and run the same command to resume"
                )
        except KeyboardInterrupt:
            self.announce("Saving the trials that are being trained; Ctrl-C again ends at once")
            raise
        finally:
            self._end_all()

    def _end_all(self) -> None:
        """End the processes, those of trials once these are saved; at once at a second signal."""
        workers = [process for name, process in self.running.items() if name != _CHIEF]
        try:
            for process in workers:
                process.terminate()
            until = time.monotonic() + _GRACE_SECONDS
            with contextlib.suppress(subprocess.TimeoutExpired):
                for process in workers:
                    process.wait(max(0.0, until - time.monotonic()))
        finally:
            for process in self.running.values():
                process.kill()
            for process in self.running.values():
                _await_end(process)
                for part in self.folder.path.rglob(f".{process.pid}.*"):  # of `atomic_path`
                    part.unlink(missing_ok=True)

    def _next_ended(self) -> tuple[str, int]:
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

    def _start(self, name: str, pin: Pin, more: Mapping[str, str]) -> None:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": pin.gpus,
            **role_variables(name, ip=LOOPBACK, port=self.port),
            "no_grpc_proxy": LOOPBACK,
            **more,
        }
        with hold_signals() as received:  # a process that nobody knows would not be ended
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command(self.folder.path, pin),
                env=environment,
                stdin=subprocess.PIPE,  # it closes when this process ends, however it ends
                start_new_session=True,  # Ctrl-C is for this process alone, which ends the others
            )
            self.running[name] = process
        received.check()

        def wait() -> None:
            self._ended.put((name, _await_end(process)))

        threading.Thread(target=wait, daemon=True).start()

    def _replace(self, name: str, code: int) -> None:
        marker = running_marker(self.folder.trials, name)
        if not marker.exists():  # the trial is not the cause, if there was one
            self._lost_code = code
            self.announce(f"{name} ended with exit code {code}")
            if not set(self.running) - {_CHIEF}:
                raise UserError(
                    f"every worker of the search ended, the last with exit code {code}: fix the"
                    " errors above, and run the same command again"
                )
            return
        trial = marker.read_text(encoding="utf-8")
        reason = f"its process ended with exit code {code}"
        self.announce(f"{name}: trial {trial}: {reason}; starting another")
        marker.unlink()
        self._start(name, self.pins[name], {ENDED_BY: f"{trial}={reason}"})


def _await_end(process: "subprocess.Popen[bytes]") -> int:
    code = process.wait()
    if process.stdin is not None:
        process.stdin.close()
    return code


def command(folder: Path, pin: Pin) -> list[str]:
    """Return the command line of a chief or worker process."""
    cores = ",".join(map(str, pin.cores))
    return [sys.executable, "-m", "kdist.tuning.worker", str(folder), cores]


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
