"""`TrialProcess`: the process of a trial, `python -m kdist.study.trial_process FILE`."""

import dataclasses
import json
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checkpoint.checkpoint_file import checkpoint_files
from ..errors import TrainingError, UserError
from ..files import atomic_write, read_text
from ..processes.child import Child, Resources, send_answer
from ..strategies.prepare_tensorflow import prepare_process
from ..training.config import SearchTrial, TrainConfig
from .study_folder import to_json
from .trial import Trial


class TrialProcess:
    """The process that trains a trial in `run/` of the trial's folder.

    Output and errors of the process go into `output.log` and `errors.log`. An interrupted run with
    checkpoints is resumed if its settings are the same.

    Args:
        trial: The trial.
        folder: The trial's folder, which need not exist.
        resources: The GPUs and cores of the process; by default all of the machine.

    Raises:
        OSError: A file cannot be written.
    """

    def __init__(self, trial: Trial, folder: Path, resources: Resources | None = None) -> None:
        self.trial, self.folder = trial, folder
        request = make_request(trial, folder)
        resume = can_be_resumed(folder, request) or _begin_folder(trial, folder)
        atomic_write(folder / "request.json", to_json(request | {"resume": resume}))
        errors = folder / "errors.log"
        with open(folder / "output.log", "ab") as output, open(errors, "ab") as file:
            self._errors_begin = file.tell()
            self._child = Child(
                make_command(folder / "request.json"),
                resources=resources,
                output=output,
                errors=file,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._child.exit_code is not None

    def find_error(self) -> str:
        """Return the reason why the process failed, in one line; empty if it succeeded."""
        self._child.wait()
        self._child.kill()  # also the processes that the trial has started
        with open(self.folder / "errors.log", "rb") as file:
            file.seek(self._errors_begin)
            errors = file.read().decode("utf-8", errors="replace")
        process_exit = self._child.wait_for_exit(errors)
        return process_exit.line if process_exit.cause else ""

    def ask_to_end(self) -> bool:
        """Ask the process to save a checkpoint and end; `False` if it saves no checkpoints."""
        saves = self.trial.config.get("checkpoint_every") is not None
        if saves:
            self._child.send_signal(signal.SIGTERM)
        return saves

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process.

        Raises:
            TimeoutError: The process has not ended within `seconds`.
        """
        self._child.wait(seconds)

    def kill(self) -> None:
        """Kill the process, and remove the files that it was writing."""
        self._child.kill()
        for file in self.folder.rglob(f".{self._child.pid}.*"):  # temporary files of `atomic_path`
            file.unlink(missing_ok=True)


def make_command(request: Path) -> list[str]:
    """Return the command line of a process that reads a request."""
    return [sys.executable, "-m", "kdist.study.trial_process", str(request)]


def make_request(trial: Trial, folder: Path) -> dict[str, Any]:
    """Return the contents of `request.json`: the settings of a trial's run."""
    config = {**trial.config, "run_dir": str(folder / "run")}
    search = None if trial.search is None else dataclasses.asdict(trial.search)
    request: dict[str, Any] = json.loads(json.dumps({"config": config, "search": search}))
    return request


def can_be_resumed(folder: Path, request: Mapping[str, Any]) -> bool:
    """Return whether a trial's folder has checkpoints of a run with the same request."""
    try:
        previous = json.loads(read_text(folder / "request.json"))
    except (OSError, ValueError):
        return False
    is_same = all(previous.get(name) == value for name, value in request.items())
    saves = request["config"].get("checkpoint_every") is not None
    return is_same and saves and bool(checkpoint_files(folder / "run" / "checkpoints"))


def _begin_folder(trial: Trial, folder: Path) -> bool:
    """Delete and create the folder of a trial.

    If the trial continues a parent, copy the parent's run into the folder, and return True.
    """
    if folder.is_dir():  # left by an interrupted run
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    if trial.parent is None:
        return False
    shutil.copytree(folder.parent / trial.parent / "run", folder / "run", symlinks=True)
    return True


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of the trial with this folder."""
    shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)


# In the process of the trial -----------------------------------------------------------------


def main() -> None:
    """Train with the settings of the request."""
    prepare_process()
    request: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        _train(request)
    except UserError as error:
        print(error, file=sys.stderr)
        send_answer(mistake=str(error))
        sys.exit(2)
    except TrainingError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _train(request: Mapping[str, Any]) -> None:
    from ..training.run import train

    config = TrainConfig.from_dict(request["config"])
    trial = None if request["search"] is None else SearchTrial(**request["search"])
    result = train(config, verbose=2, resume=request["resume"], may_use_sample=False, trial=trial)
    if result.interrupted and result.signal is not None:  # the last epoch is not complete
        print(f"interrupted by {result.signal.name}", file=sys.stderr)
        sys.exit(128 + result.signal)


if __name__ == "__main__":
    main()
