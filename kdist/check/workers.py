"""`train_on_workers`: the training of a check on several processes of this machine."""

import dataclasses
import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from ..launch.options import LaunchOptions
from ..launch.run import launch
from .options import CheckOptions
from .record import Record
from .record_file import read_record, write_record

_MODULE = "kdist.check.worker"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """What each worker trains.

    Attributes:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data, as on the command line.
        options: Of the check.
        asked: The floats that Keras is set to.
        record: Where the chief writes what it has computed.
    """

    model: str
    data: str
    options: CheckOptions
    asked: str
    record: str

    def to_json(self) -> str:
        """The task as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WorkerTask":
        """The task of a text of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "options": CheckOptions(**values["options"])})


def train_on_workers(
    workers: int, *, model: str, data: str, options: CheckOptions, asked: str
) -> Record:
    """Train on several workers with one replica each, started as `kdist launch` does.

    Args:
        workers: Their number.
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data.
        options: Of the check.
        asked: The floats that Keras is set to.

    Returns:
        What the chief has recorded; if a worker fails, its error.
    """
    name = f"{workers} workers of kdist"
    with tempfile.TemporaryDirectory(prefix="kdist-check-") as folder:
        path = Path(folder) / "record.npz"
        task = WorkerTask(model=model, data=data, options=options, asked=asked, record=str(path))
        printed, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(errors):
            code = launch(
                ["-m", _MODULE, task.to_json()],
                LaunchOptions(workers=workers, start_timeout=300.0, hang_seconds=300.0),
            )
        if path.is_file():
            return dataclasses.replace(read_record(path), name=name)
    lines = [line for line in errors.getvalue().splitlines() if line.strip()]
    last = lines[-1] if lines else f"a worker ended with exit code {code}"
    return Record(name=name, replicas=workers, error=last)


def save(path: str, record: Record) -> None:
    """Write the record of the chief."""
    write_record(Path(path), record)
