"""Folders of runs, sweeps and searches, with a file of them damaged."""

import csv
import dataclasses
import io
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from kdist.study.folder import FORMAT
from kdist.study.search_results import COLUMNS
from kdist.study.search_settings import Search
from kdist.study.sweep_kinds import EXPERIMENTS
from kdist.training.config import TrainConfig

from .settings_files import ODD_VALUES, as_json_text, damaged

_TESTS = Path(__file__).resolve().parents[2] / "tests"
_CELLS = st.sampled_from(
    [
        *["-1", "0", "-0.5", "1", "1e308", "1e999", "nan", "inf", "", " ", "x", "9" * 5000],
        *['"', '"a\nb"', "\0", "1,2", "1;2", "<script>", "None", "1e-320", "\u0663"],
    ]
)

Files = dict[str, bytes | None]

_KINDS = ("run", *EXPERIMENTS)


@cache
def whole(kind: str) -> Files:
    """The files of a run, a search, or a sweep of a kind, all whole."""
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    import report_folders as made

    if kind == "search":
        return _search()
    with tempfile.TemporaryDirectory() as name:
        if kind == "run":
            made.write_run(Path(name, "run"))
        else:
            made.write_sweep(Path(name, "s"), kind, getattr(made, f"{kind}_rows")())
        files = (path for path in sorted(Path(name).rglob("*")) if path.is_file())
        return {str(path.relative_to(name)): path.read_bytes() for path in files}


_TRIED = {
    "base_lr": 0.01,
    "batch_size": 16,
    "optimizer": "sgd",
    "schedule": "cosine",
    "wd": 1e-5,
    "dropout": 0.1,
    "label_smoothing": 0.1,
}


def _search() -> Files:
    """A finished search of two trials, where `kdist tune` looks for one."""
    search = Search(max_trials=2, config=TrainConfig(dataset="sample", depth=10, width=1))
    trials = [
        dict.fromkeys(COLUMNS)
        | {"name": f"trial-{number}", "status": "done", "score": score, "values": _TRIED}
        | {"seconds": 10.0, "epochs": 3, "best_val_accuracy": score}
        for number, score in enumerate((0.5, 0.75))
    ]
    files = {
        "study.json": {"format": FORMAT, **dataclasses.asdict(search.about)},
        "trials.json": trials,
    }
    return {
        f"runs/tune/{name}": f"{json.dumps(value, indent=2)}\n".encode()
        for name, value in files.items()
    }


@st.composite
def result_files(draw: st.DrawFn, kinds: Sequence[str] = _KINDS) -> Files:
    """One or two folders or files of results, up to two of their files changed."""
    found: Files = {}
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True)):
        found |= whole(kind)
    for _ in range(draw(st.integers(0, min(2, len(found))))):
        name = draw(st.sampled_from(sorted(found)))
        content = found[name]
        if content is None or draw(st.integers(0, 7)) == 0:
            del found[name]
            if draw(st.booleans()):
                found[name] = None  # a folder in the file's place
        else:
            found[name] = draw(_changed(name, content))
    return found


def _changed(name: str, content: bytes) -> st.SearchStrategy[bytes]:
    other = _other_json(content) if name.endswith(".json") else _other_csv(content)
    return other | other | damaged(content)


@st.composite
def _other_json(draw: st.DrawFn, content: bytes) -> bytes:
    """The same JSON with a value somewhere in it removed or replaced."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # it was damaged before
        return content
    place: Any = value
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or draw(st.booleans()):
            if draw(st.integers(0, 3)):
                place[key] = draw(ODD_VALUES)
            else:
                del place[key]
            break
        place = place[key]
    return as_json_text(value).encode()


@st.composite
def _other_csv(draw: st.DrawFn, content: bytes) -> bytes:
    """The same table with a cell replaced, or a line or column removed or added."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8", "replace"))))
    for _ in range(draw(st.integers(1, 3))):
        row = draw(st.integers(0, len(rows) - 1)) if rows else 0
        match draw(st.integers(0, 5)):
            case 0:
                rows[row : row + 1] = []
            case 1:
                rows.insert(row, draw(st.lists(_CELLS, max_size=12)))
            case 2:
                rows = [line[1:] for line in rows]
            case _ if rows and rows[row]:
                column = draw(st.integers(0, len(rows[row]) - 1))
                rows[row][column] = draw(_CELLS)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")
