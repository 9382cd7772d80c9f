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
PREFIX = "kdist check: "
"""In front of the error that a worker prints."""
OTHER_SAMPLES = "the data function gave other samples there, after the same seed"
"""The error of a worker whose samples are not those of the training on one replica."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """What each worker trains.

    Attributes:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data, as on the command line.
        options: Of the check.
        asked: The floats that Keras is set to.
        evaluates: Whether the model can be evaluated.
        samples: The fingerprint of the samples of the other trainings.
        record: Where the chief writes what it has computed.
    """

    model: str
    data: str
    options: CheckOptions
    asked: str
    evaluates: bool
    samples: str
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
    workers: int,
    *,
    model: str,
    data: str,
    options: CheckOptions,
    asked: str,
    evaluates: bool,
    samples: str,
) -> Record:
    """Train on several workers with one replica each, started as `kdist launch` does.

    Args:
        workers: Their number.
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data.
        options: Of the check.
        asked: The floats that Keras is set to.
        evaluates: Whether the model can be evaluated.
        samples: The fingerprint of the samples of the other trainings.

    Returns:
        What the chief has recorded; if a worker fails, its error.
    """
    name = f"{workers} workers of kdist"
    with tempfile.TemporaryDirectory(prefix="kdist-check-") as folder:
        path = Path(folder) / "record.npz"
        task = WorkerTask(
            model=model,
            data=data,
            options=options,
            asked=asked,
            evaluates=evaluates,
            samples=samples,
            record=str(path),
        )
        # With a buffer, to which the launcher passes on what workers print.
        printed, errors = (io.TextIOWrapper(io.BytesIO(), errors="replace") for _ in range(2))
        with redirect_stdout(printed), redirect_stderr(errors):
            code = launch(
                ["-m", _MODULE, task.to_json()],
                LaunchOptions(workers=workers, start_timeout=300.0, hang_seconds=300.0),
            )
        errors.seek(0)
        lines = [line for line in errors.read().splitlines() if line.strip()]
        if path.is_file() and not code:
            return dataclasses.replace(read_record(path), name=name)
    said = [line.partition(PREFIX)[2] for line in lines if PREFIX in line]
    last = (said or lines or [f"a worker ended with exit code {code}"])[-1]
    return Record(name=name, replicas=workers, error=last)


def save(path: str, record: Record) -> None:
    """Write the record of the chief."""
    write_record(Path(path), record)
