"""Measurements from a CSV file: images per second against the batch size."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..analysis.groups import Row
from ..errors import UserError
from ..input_files import read_text
from ..runs.text import sanitize_text

REQUIRED = ("batch_size", "images_per_sec")


@dataclass(frozen=True, kw_only=True)
class CsvMeasurements:
    """A table of measurements.

    Attributes:
        name: What the report calls it: the file's name without its ending.
        path: The file.
        rows: A measurement each, with the columns of a throughput sweep that go with it:
            `batch_size` (per replica), `replicas`, `images_per_sec`, ...
    """

    name: str
    path: Path
    rows: list[Row]


def read_csv_measurements(path: Path) -> CsvMeasurements:
    """Read a CSV file with the columns `batch_size`, `images_per_sec` and, optionally, `replicas`.

    Other columns and empty lines are ignored.

    Raises:
        UserError: It cannot be read, lacks a column or has a value that is no number above 0; the
            message names the line.
    """
    columns, lines = _read(path)
    absent = [name for name in REQUIRED if name not in columns]
    if absent:
        raise UserError(
            f"no column {' and '.join(absent)}: expected a CSV file with batch_size,"
            " images_per_sec and, optionally, replicas"
        )
    rows = [_row(line, number) for number, line in lines]
    if not rows:
        raise UserError("it has no rows of measurements")
    return CsvMeasurements(name=sanitize_text(path.stem), path=path, rows=rows)


def _read(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns, and the number and values of each line."""
    try:
        text = io.StringIO(read_text(path), newline="")
        reader = csv.DictReader(text, restval="", skipinitialspace=True)
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        return list(reader.fieldnames), [(reader.line_num, line) for line in reader]
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"not a valid CSV file: {error}") from error


def _row(line: Mapping[str, str], number: int) -> Row:
    words = {name: line[name] for name in REQUIRED} | {"replicas": line.get("replicas") or "1"}
    values = {name: _positive(name, text, number) for name, text in words.items()}
    speed = values["images_per_sec"]
    return {
        **values,
        "workers": None,
        "images_per_step": values["batch_size"] * values["replicas"],
        "images_per_sec_low": speed,
        "images_per_sec_high": speed,
        "round": None,
    }


def _positive(name: str, text: str, number: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"line {number}: {name} is {text!r}, expected a number above 0")
    return value
