"""Run several trials at once: KerasTuner's chief and its workers, each in its own process."""

import contextlib
import dataclasses
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
from ..launch.places import LOOPBACK, free_ports
from ..launch.shares import divide, visible_cores, visible_gpus
from ..runs.text import count
from .console import Pace
from .folder import StudyFolder
from .search_settings import Search

_TUNER_ID = "KERASTUNER_TUNER_ID"
ORACLE_IP = "KERASTUNER_ORACLE_IP"
_ORACLE_PORT = "KERASTUNER_ORACLE_PORT"


@dataclasses.dataclass(frozen=True)
class Role:
    """The role of a process in a search.

    Attributes:
        tuner_id: KerasTuner's name of the process; `None` if it runs the whole search.
    """

    tuner_id: str | None = None

    @property
    def is_chief(self) -> bool:
        """Whether it hands out the trials without training any."""
        return self.tuner_id is not None and "chief" in self.tuner_id

    @property
    def is_worker(self) -> bool:
        """Whether it trains the trials that a chief hands out."""
        return self.tuner_id is not None and not self.is_chief


def read_role(environment: Mapping[str, str]) -> Role:
    """Read the role of a process from its environment, such as `os.environ`.

    Raises:
        UserError: KerasTuner's variables are not all set.
    """
    if ORACLE_IP not in environment:
        return Role()
    missing = [name for name in (_ORACLE_PORT, _TUNER_ID) if name not in environment]
    if missing:
        raise UserError(
            f"received {ORACLE_IP} without {' and '.join(missing)}: set it too, or unset the"
            " variable"
        )
    return Role(environment[_TUNER_ID])


def role_variables(tuner_id: str, *, ip: str, port: int) -> dict[str, str]:
    """Return the environment variables that give a process its role: `"chief"`, or any other name.

    Args:
        tuner_id: Its name.
        ip: The chief's address.
        port: The chief's port.
    """
    return {_TUNER_ID: tuner_id, ORACLE_IP: ip, _ORACLE_PORT: str(port)}


#: A trial and why its process ended, as `trial=reason`, for the process that replaces it.
ENDED_BY = "KDIST_TUNE_ENDED_BY"


def running_marker(folder: Path, tuner_id: str) -> Path:
    """Return the path of the file that names a worker's trial, in case its process dies."""
    return folder / f"{tuner_id}.running"


_CHIEF = "chief"
_POLL_SECONDS = 2.0
# What workers get to end a step and to save their trials.
_GRACE_SECONDS = 30.0


class SearchProcesses:
    """The processes of a search: KerasTuner's chief, and a worker for each trial at a time.

    A worker that dies is replaced, and its trial is recorded as failed. However this ends, workers
    are asked to save their trials before they are killed.

    Args:
        search: The settings, with `workers`, as `with_replicas` returns them.
        folder: Of the search, open.
        announce: Called with lines about the processes.
    """

    def __init__(
        self, search: Search, folder: StudyFolder, announce: Callable[[str], None]
    ) -> None:
        self.search, self.folder, self.announce = search, folder, announce
        workers, self.replicas = search.workers or 1, search.config.replicas or 1
        gpus = visible_gpus(os.environ)[: workers * self.replicas]
        shares = divide(workers=workers, gpus=gpus, cores=visible_cores())
        self.shares = {f"worker{index}": share for index, share in enumerate(shares)}
        (self.port,) = free_ports(1)
        self.running: dict[str, Child] = {}
        self._ended: queue.Queue[str] = queue.Queue()
        self._lost = ""  # how a worker ended that was not replaced
        self._trials = len(self._ids("end_order"))
        self._pace = Pace(done=self._trials)

    def run(self) -> None:
        """Run the remaining trials, and return when all workers have ended.

        Raises:
            UserError: The chief or every worker ended too early. The same command then resumes the
                search, if there is anything to resume.
            KeyboardInterrupt: Ctrl-C or the like; another one kills the workers at once.
        """
        self.announce(f"Trials at once: {len(self.shares)}, replicas per trial: {self.replicas}")
        for marker in self.folder.trials.glob("*.running"):
            marker.unlink()
        try:
            self._start(_CHIEF, Share(gpus=("-1",)), {})
            for name, share in self.shares.items():
                self._start(name, share, {})
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
            if self._lost and len(self._ids("start_order")) > len(self._ids("end_order")):
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
                trials, total = len(self._ids("end_order")), self.search.max_trials
            if trials == self._trials:
                continue
            self._trials = trials
            left = self._pace.time_left(trials, total=total)
            of = count(trials, "trial") if total is None else f"{trials} of {count(total, 'trial')}"
            self.announce(of + (f", {left}" if left else ""))

    def _ids(self, order: str) -> list[str]:
        """The trials that began, by `"start_order"`, or ended, by `"end_order"`."""
        return list((self.folder.read("trials/oracle.json") or {}).get(order, ()))

    def _start(self, name: str, share: Share, more: Mapping[str, str]) -> None:
        environment = {
            **role_variables(name, ip=LOOPBACK, port=self.port),
            "no_grpc_proxy": LOOPBACK,
            **more,
        }
        child = Child(command(self.folder.path), share=share, environment=environment)
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
        is_memory = verdict.cause == "memory"
        reason = verdict.line if is_memory else f"its process ended with {verdict.how}"
        self.announce(f"{name}: trial {trial}: {reason}; starting another")
        marker.unlink()
        self._start(name, self.shares[name], {ENDED_BY: f"{trial}={reason}"})


def with_replicas(search: Search) -> Search:
    """Return a search whose settings have the number of replicas of a trial.

    By default each of several trials at once has its share of the GPUs, or one replica without.

    Raises:
        UserError: There are too few GPUs, or they cannot be divided evenly.
    """
    if search.workers is None:
        return search
    gpus, replicas = visible_gpus(os.environ), search.config.replicas
    if replicas is None:
        shares = divide(workers=search.workers, gpus=gpus, cores=())
        replicas = len(shares[0].gpus or ()) or 1
    if gpus and search.workers * replicas > len(gpus):
        raise UserError(
            f"received {search.workers} workers with {replicas} replicas each, but {len(gpus)} GPUs"
            " are visible: lower --workers or --replicas"
        )
    return dataclasses.replace(search, config=dataclasses.replace(search.config, replicas=replicas))


def command(folder: Path) -> list[str]:
    """Return the command line of a chief or worker process."""
    return [sys.executable, "-m", "kdist.study.search_run", str(folder)]
