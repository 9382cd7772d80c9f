"""One group of worker processes on this machine, which runs many cases in sequence."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kdist.workers.launcher import free_ports

ROOT = Path(__file__).parents[2]
MAIN = Path(__file__).with_name("worker_process.py")
LONGEST_SECONDS = 3600
GRACE_SECONDS = 60  # for the others to end by themselves, and to say where they were


def run_group(
    kind: str,
    names: Sequence[str],
    folder: Path,
    *,
    workers: int,
    replicas: int = 1,
    case_seconds: int = 300,
) -> dict[str, list[str]]:
    """Run the cases on all workers; return for each what each worker found wrong.

    A case that is missing was not run: the group ends at the first failure, as the workers' steps
    may no longer match. What the workers wrote is in `output(folder)`.

    Args:
        kind: `parity`, or another module of cases in this folder.
        names: Of the cases.
        folder: For the workers' files.
        workers: Number of processes.
        replicas: On each.
        case_seconds: After this time in one case, a worker writes its stack and ends.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(list(names)))
    processes = [
        _start(kind, folder, addresses, worker, replicas, case_seconds) for worker in range(workers)
    ]
    try:
        _join(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    found: dict[str, list[str]] = {}
    for worker in range(workers):
        path = folder / f"worker_{worker}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            name, problem = json.loads(line)
            found.setdefault(name, []).append(problem)
    complete = {name: problems for name, problems in found.items() if len(problems) == workers}
    failed = {name: problems for name, problems in found.items() if any(problems)}
    return complete | failed


def output(folder: Path) -> str:
    """What the workers wrote."""
    return "\n".join(
        f"--- {path.stem}\n{path.read_text()[-6000:]}" for path in sorted(folder.glob("*.log"))
    )


def _start(
    kind: str, folder: Path, addresses: list[str], worker: int, replicas: int, case_seconds: int
) -> subprocess.Popen[bytes]:
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}}
    environment = os.environ | {
        "TF_CONFIG": json.dumps(config),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(
            [
                str(ROOT),
                *(str(ROOT / "tests" / name) for name in ("", "parity", "checkpoint")),
                *filter(None, [os.environ.get("PYTHONPATH")]),
            ]
        ),
    }
    arguments = [kind, str(folder), str(replicas), str(case_seconds)]
    with (folder / f"worker_{worker}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(MAIN), *arguments], env=environment, stdout=log, stderr=log
        )


def _join(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for all; once one has failed, for the others only a while."""
    ended: queue.Queue[int] = queue.Queue()
    for process in processes:
        threading.Thread(target=lambda p=process: ended.put(p.wait()), daemon=True).start()
    seconds = LONGEST_SECONDS
    for _ in processes:
        try:
            code = ended.get(timeout=seconds)
        except queue.Empty:
            return
        if code:
            seconds = GRACE_SECONDS
