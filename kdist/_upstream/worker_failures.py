"""Tell the other workers of a failure, and learn of theirs."""

import sys
from types import TracebackType

import tensorflow as tf
from tensorflow.python.eager import context

_LONGEST = 500


def failures(strategy: tf.distribute.Strategy) -> list[str | None]:
    """Return for each worker why it has failed, `None` for those that have not."""
    spec = strategy.extended._cluster_spec
    jobs = [(job, spec.num_tasks(job)) for job in ("chief", "worker") if job in spec.jobs]
    try:
        states = context.context().get_task_states(jobs)
    except tf.errors.OpError:
        return ["it cannot be reached"]  # the chief, who keeps the states
    return [None if state is None else _reason(state) for state in states]


def _reason(state: tf.errors.OpError) -> str:
    if isinstance(state, tf.errors.UnavailableError):
        return "it has ended, or cannot be reached"
    return str(state.message)


def report_uncaught() -> None:
    """Send an exception that nobody catches to all workers, which then fail with its message."""
    before = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        message = f"{kind.__name__}: {error}".partition("\n")[0][:_LONGEST]
        try:
            context.context().report_error_to_cluster(tf.errors.UNKNOWN, message)
        except (tf.errors.OpError, ValueError):
            return  # they know of a failure already

    sys.excepthook = hook
