"""Write and read a `Record`: what a worker tells the process that compares."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from ..atomic_files import atomic_path
from .record import Item, Record

_PLAIN = tuple(field.name for field in dataclasses.fields(Record) if field.name != "values")


def write_record(path: Path, record: Record) -> None:
    """Write a record.

    Args:
        path: An `.npz` file.
        record: What is written.
    """
    items = list(record.values)
    text = json.dumps(
        {
            **{name: getattr(record, name) for name in _PLAIN},
            "items": [dataclasses.astuple(item) for item in items],
        }
    )
    arrays = {f"value{index}": record.values[item] for index, item in enumerate(items)}
    with atomic_path(path) as part, open(part, "wb") as file:
        np.savez(file, text=np.array(text), **arrays)


def read_record(path: Path) -> Record:
    """Read what `write_record` has written."""
    with np.load(path, allow_pickle=False) as file:
        found = json.loads(str(file["text"]))
        items = [Item(*item) for item in found.pop("items")]
        values = {item: file[f"value{index}"] for index, item in enumerate(items)}
    return Record(**found, values=values)
