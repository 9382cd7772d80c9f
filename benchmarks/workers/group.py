"""`Group`: processes of a benchmark that wait for their turns, so that groups can take turns."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from kdist.launch import exec_child
from kdist.launch.device_assignment import divide, visible_cores
from kdist.workers.launcher import free_ports

_MODULE = "benchmarks.workers.turns"


class Group:
    """Processes that run `python -m benchmarks.workers.turns KIND SETTINGS`.

    Each prints one JSON object when it is ready, and one after each turn: its result. The cores are
    divided among them, as by `kdist launch`.

    Args:
        kind: The function of `candidates.py` that makes the candidates.
        settings: Its arguments.
        workers: Number of processes. Of more than one, each is a worker of one cluster.
        hosts: The address of each worker; `None` uses this machine's loopback.
        prefixes: Put in front of the command of each, such as `ip netns exec NAME`.
    """

    def __init__(
        self,
        kind: str,
        settings: Mapping[str, Any],
        *,
        workers: int,
        hosts: Sequence[str] | None = None,
        prefixes: Sequence[Sequence[str]] | None = None,
    ) -> None:
        hosts = hosts or ["127.0.0.1"] * workers
        ports = free_ports(workers)
        shares = divide(workers=workers, gpus=(), cores=visible_cores())
        addresses = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for worker in range(workers):
                prefix = prefixes[worker] if prefixes else ()
                cores = ",".join(map(str, shares[worker].cores))
                start = [*prefix, sys.executable, exec_child.__file__, str(os.getpid()), cores]
                command = [*start, sys.executable, "-m", _MODULE, kind, json.dumps(settings)]
                config = {
                    "cluster": {"worker": addresses},
                    "task": {"type": "worker", "index": worker},
                }
                own = {"TF_CONFIG": json.dumps(config)} if workers > 1 else {}
                self._processes.append(
                    subprocess.Popen(
                        command,
                        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **own},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def ready(self) -> Any:
        """Wait until every process is ready; return what the first says of itself."""
        return self._results()[0]

    def turn(self, name: str) -> Any:
        """Let all processes run a candidate; return the first one's result."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.write(f"{name}\n")
                process.stdin.flush()
        return self._results()[0]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

    def _results(self) -> list[Any]:
        return [_result(process) for process in self._processes]


def _result(process: subprocess.Popen[str]) -> Any:
    """Return the next JSON object that a process prints."""
    for line in process.stdout or ():
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit(f"a process of the benchmark has ended with exit code {process.wait()}")
