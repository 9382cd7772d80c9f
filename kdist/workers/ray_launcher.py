"""`launch_on_ray`: runs a program on several workers of a Ray cluster.

Ray Train places the workers, and starts all of them again when one is lost. A worker is a child
process of an actor of Ray, so it has signals and an exit code of its own.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.backend import Backend, BackendConfig
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from ..errors import LOST_WORKER_EXIT_CODE, TrainingError
from ..processes.child import Child
from ..processes.process_exit import shell_code
from .launch_options import LaunchOptions, wait_limits_in
from .launcher import USAGE_ERROR, free_ports
from .tf_config import NOTES, worker_environment


def launch_on_ray(program: Sequence[str], options: LaunchOptions) -> int:
    """Run a Python program on several workers of a Ray cluster until all workers have ended.

    Without `RAY_ADDRESS` and without a cluster on this machine, Ray starts a cluster here. If there
    are GPUs, each worker has one GPU. Returns the exit code of a failed worker, preferably of a
    worker that did not fail because another worker was lost; 0 without a failure.
    """
    ray.init()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    workers = options.workers or gpus or 1
    folder = Path.cwd()  # has to be shared by all machines; Ray checks that it is
    with tempfile.TemporaryDirectory(prefix="kdist-launch-", dir=folder) as notes:
        trainer = DataParallelTrainer(
            _run_worker,
            train_loop_config={
                "program": list(program),
                "folder": str(folder),
                "notes": notes,
                "limits": wait_limits_in(os.environ),
            },
            backend_config=_AddressesConfig(),
            scaling_config=ray.train.ScalingConfig(
                num_workers=(1, workers) if options.elastic else workers, use_gpu=bool(gpus)
            ),
            run_config=ray.train.RunConfig(
                name="ray",
                storage_path=notes,
                failure_config=ray.train.FailureConfig(max_failures=options.max_restarts),
            ),
        )
        try:
            _fit_in_thread(trainer)
        except ray.train.TrainingFailedError as error:
            print(f"kdist launch: {error}", file=sys.stderr, flush=True)
            return _exit_code(Path(notes))
        return USAGE_ERROR if _had_usage_error(Path(notes)) else 0


def _fit_in_thread(trainer: DataParallelTrainer) -> None:
    """Call `fit` in a thread: in the main thread, Ray would exit with code 0 after Ctrl-C."""
    with ThreadPoolExecutor(1) as executor:
        try:
            executor.submit(trainer.fit).result()
        finally:
            ray.shutdown()  # ends all workers


# Each attempt and each failure is a file of the notes: `attempt-0`, `failure-0-RANK-CODE`.


def _begin_attempt(notes: Path) -> int | None:
    """Count an attempt; return the number of earlier attempts, `None` after a usage error."""
    if _had_usage_error(notes):
        return None
    attempt = len(list(notes.glob("attempt-*")))
    (notes / f"attempt-{attempt}").touch()
    return attempt


def _had_usage_error(notes: Path) -> bool:
    """Whether a worker ended with a usage error, which would come again after a restart."""
    return any(notes.glob(f"failure-*-{USAGE_ERROR}"))


def _exit_code(notes: Path) -> int:
    """Return the first exit code of the last attempt, if possible not `LOST_WORKER_EXIT_CODE`."""
    last = len(list(notes.glob("attempt-*"))) - 1
    files = sorted(notes.glob(f"failure-{last}-*"), key=lambda file: file.stat().st_mtime_ns)
    codes = [int(file.name.rpartition("-")[2]) for file in files]
    return next(
        (code for code in codes if code != LOST_WORKER_EXIT_CODE),
        LOST_WORKER_EXIT_CODE if codes else 1,
    )


def _run_worker(settings: Mapping[str, Any]) -> None:
    """Run the program as a child process, in an actor of Ray."""
    rank = ray.train.get_context().get_world_rank()
    notes = Path(settings["notes"])
    attempt = broadcast_from_rank_zero(_begin_attempt(notes) if rank == 0 else None)
    if attempt is None:
        return
    os.chdir(settings["folder"])
    place = worker_environment(_addresses, rank=rank, restarts=attempt)
    environment = {NOTES: str(notes), **settings["limits"], **place}
    with Child([sys.executable, *settings["program"]], environment=environment) as child:
        code = shell_code(child.wait())
    if code:
        (notes / f"failure-{attempt}-{rank}-{code}").touch()
        raise TrainingError(f"worker {rank} ended with exit code {code}")


_addresses: list[str] = []  # in an actor, the addresses of all workers


def _find_free_address() -> str:
    return f"{ray.util.get_node_ip_address()}:{free_ports(1)[0]}"


def _set_addresses(addresses: Sequence[str]) -> None:
    _addresses[:] = addresses


class _Addresses(Backend):
    """Tells all workers the addresses of all workers."""

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        del backend_config
        worker_group.execute(_set_addresses, worker_group.execute(_find_free_address))


class _AddressesConfig(BackendConfig):
    backend_cls = _Addresses
