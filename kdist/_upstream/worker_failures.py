"""Find failed workers by TensorFlow's heartbeats, and make all workers fail.

A worker that sends no heartbeat for `heartbeat_seconds` has failed. `workers/worker_end.py` asks
for the failures.
"""

import atexit
import contextlib

import tensorflow as tf
from tensorflow.python.eager import context

from .worker_store import call_c_function, chief_answers, chief_is_lost, chief_is_silent

_LONGEST_MESSAGE = 500
_SILENT = "it does not answer"
_UNREACHED = "it cannot be reached"
_ENDED = "it has ended, or cannot be reached"
_CONNECTION_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


def find_failures(strategy: tf.distribute.Strategy) -> list[str | None]:
    """Return the reason of each worker's failure; `None` for a worker that has not failed.

    The chief keeps the states. While the chief does not answer, the list is empty. Once the chief
    is lost, the list has only the chief's reason.
    """
    if not chief_answers():  # TensorFlow would wait, and Python with it
        return [_SILENT] if chief_is_lost() else []
    spec = strategy.extended._cluster_spec
    jobs = [(job, spec.num_tasks(job)) for job in ("chief", "worker") if job in spec.jobs]
    try:
        states = context.context().get_task_states(jobs)
    except tf.errors.OpError:
        return [_UNREACHED]  # the chief: it keeps the states
    return [None if state is None else _describe_failure(state) for state in states]


def _describe_failure(state: tf.errors.OpError) -> str:
    return _ENDED if isinstance(state, tf.errors.UnavailableError) else str(state.message)


def is_lost(reason: str) -> bool:
    """Whether a reason that `find_failures` returned stands for a worker without a known error."""
    return reason in (_SILENT, _UNREACHED, _ENDED)


def report_failure(message: str) -> None:
    """Make all workers fail with a message, unless the chief does not answer."""
    # The workers may know of a failure already, or may all have ended.
    with contextlib.suppress(tf.errors.OpError, ValueError):
        if chief_is_silent() or not chief_answers():
            return
        call_c_function(
            "TFE_ReportErrorToCluster", tf.errors.UNKNOWN, message[:_LONGEST_MESSAGE].encode()
        )


def abort_collectives() -> None:
    """Make this worker's waiting collectives fail, and all its later collectives."""
    with contextlib.suppress(tf.errors.OpError, ValueError):
        context.context().abort_collective_ops(
            tf.errors.ABORTED, "no step has ended for a long time"
        )


def is_lost_connection(error: BaseException) -> bool:
    """Whether TensorFlow raises this type of error on a worker that has lost another worker."""
    return isinstance(error, _CONNECTION_ERRORS)


def run_exit_functions() -> None:
    """Run the functions that the program has registered with `atexit`."""
    atexit._run_exitfuncs()
