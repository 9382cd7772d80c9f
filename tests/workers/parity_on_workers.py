"""The cases of tests/parity: on all workers, the model that one replica gives."""

import faulthandler
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import harness
import keras
from cases import CASES, on_one_replica
from checkpoint_cases import CASES as CHECKPOINT_CASES
from kdist._upstream.graphs import forget_custom_gradients


def prepare(strategy, folder: Path) -> Callable[[str], str]:
    """Train every case on one replica, each worker its part; then return what compares one."""
    names = [n for n in json.loads((folder / "cases.json").read_text()) if n in CASES]
    for name in names[strategy.worker :: strategy.workers]:
        path = _path(folder, name)
        if not path.exists():
            faulthandler.dump_traceback_later(300, exit=True)
            path.write_bytes(pickle.dumps(on_one_replica(name)))
            forget_custom_gradients()
            keras.backend.clear_session()
    faulthandler.dump_traceback_later(300, exit=True)
    strategy.exchange("the end of the references", None)

    def compare(name: str) -> str:
        if name in CHECKPOINT_CASES:
            CHECKPOINT_CASES[name](strategy, folder)
            return ""
        expected = pickle.loads(_path(folder, name).read_bytes())
        gaps = harness.differences(expected, harness.train(CASES[name], strategy))
        return str(harness.too_large(CASES[name], gaps) or "")

    return compare


def _path(folder: Path, name: str) -> Path:
    return folder.parent / f"{name}.pickle"
