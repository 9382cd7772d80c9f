"""Cases of tests/parity and behaviours of workers, run by several workers."""

import faulthandler
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import harness
import keras
from behaviours_on_workers import CASES as BEHAVIOURS
from behaviours_on_workers import OTHER_CASES
from cases import CASES, on_one_replica
from replicas import forget_custom_gradients

OWN_CASES = BEHAVIOURS | OTHER_CASES


def prepare(strategy, folder: Path) -> Callable[[str], str]:
    """Train parity cases on one replica, each worker its part; return the function of a case."""
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
        if name in OWN_CASES:
            OWN_CASES[name](strategy, folder)
            return ""  # a worker that fails ends the group
        expected = pickle.loads(_path(folder, name).read_bytes())
        gaps = harness.differences(expected, harness.train(CASES[name], strategy))
        return str(harness.too_large(CASES[name], gaps) or "")

    return compare


def _path(folder: Path, name: str) -> Path:
    return folder.parent / f"{name}.pickle"
