"""A worker of `group.run_group`: runs the cases, and writes a line for each."""

import faulthandler
import gc
import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path

import kdist
import keras
import tensorflow as tf
from kdist.spmd import divided_variables
from replicas import forget_custom_gradients


def main(kind: str, folder: Path, replicas: int, case_seconds: int) -> None:
    warnings.simplefilter("error")
    # Keras's own, when it saves a model under NumPy 2.
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.get_logger().setLevel("ERROR")
    faulthandler.dump_traceback_later(300, exit=True)
    gc.freeze()  # no collection between cases need walk what was imported
    # The limit on a case is set by `faulthandler`, whose one timer kdist would set, too.
    divided = os.environ.get("DIVIDED")
    if divided:  # variables of the tests' sizes, also unevenly
        divided_variables.LEAST_ELEMENTS, divided_variables._LARGEST_UNEVENNESS = 2, 2.0
    strategy = kdist.MultiWorkerMirroredStrategy(
        replicas=replicas,
        shard_optimizer=divided == "state",
        shard_weights=divided == "weights",
        hang_seconds=float(os.environ.get("HANG_SECONDS", 0)),
    )
    # A fifth of the time is TensorFlow's graph optimizer, which the other tests have.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    run = importlib.import_module(f"{kind}_on_workers").prepare(strategy, folder)
    with (folder / f"worker_{strategy.worker}.jsonl").open("w") as results:
        for name in json.loads((folder / "cases.json").read_text()):
            faulthandler.dump_traceback_later(case_seconds, exit=True)
            try:
                problem = run(name)
            except BaseException:
                # The others may wait for this worker for ever: they end with the group.
                _write(results, name, traceback.format_exc()[-3000:])
                raise
            _write(results, name, problem)
            if any(strategy.exchange("the end of a case", problem)):
                break
            forget_custom_gradients()
            keras.backend.clear_session()
    faulthandler.cancel_dump_traceback_later()


def _write(results, name: str, problem: str) -> None:
    results.write(json.dumps([name, problem]) + "\n")
    results.flush()


def _end_process(code: int) -> None:
    """End at once: TensorFlow would wait for workers that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    kind, folder, replicas, case_seconds = sys.argv[1:]
    try:
        main(kind, Path(folder), int(replicas), int(case_seconds))
    except BaseException:
        sys.excepthook(*sys.exc_info())  # prints it, and tells the others
        _end_process(1)
    _end_process(0)
