"""Several workers, each in a thread, with a dictionary for a store."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kdist.errors import TrainingError, UserError
from kdist.workers.agreement import Agreement
from worker_store import WorkerStore


class Nobody(WorkerStore):
    """A store in which no other worker puts anything."""

    def get_key(self, key, *, timeout_ms):
        return None


def on_workers(count, act):
    """Call `act(worker, agreement)` on each; return results or errors."""
    keys = WorkerStore()

    def run(worker):
        try:
            return act(worker, Agreement(worker, count, keys))
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count))), keys.values


def test_every_worker_gets_what_all_have_passed_in_the_order_of_workers():
    def act(worker, agreement):
        return [agreement.exchange("fit", [worker, step]) for step in range(3)]

    results, left = on_workers(3, act)
    assert results == [[[[0, step], [1, step], [2, step]] for step in range(3)]] * 3
    assert len(left) == 3  # of the last exchange only


def test_a_single_worker_needs_no_store():
    agreement = Agreement(0, 1, None)
    assert agreement.exchange("fit", 5) == [5]
    agreement.compare("fit", {"batches": 5})


def test_a_difference_says_which_worker_has_what():
    def act(worker, agreement):
        agreement.compare("fit", {"the policy": "float32", "batches": [4, 4, 2][worker]})

    results, _ = on_workers(3, act)
    message = (
        "the workers differ at fit: batches is 4 on workers 0 and 1, 2 on worker 2; the value"
        " has to be the same on all workers"
    )
    assert results == [message] * 3


def test_long_values_are_shown_around_their_difference():
    def act(worker, agreement):
        agreement.compare("fit", {"weights": "x" * 500 + f"({worker}, 3)" + "y" * 500})

    (first, _), _ = on_workers(2, act)
    assert "(0, 3)" in first
    assert "(1, 3)" in first
    assert len(first) < 300


def test_workers_that_do_different_things_are_told():
    def act(worker, agreement):
        agreement.compare(["evaluate", "fit"][worker], {"batches": 4})

    (first, second), _ = on_workers(2, act)
    assert first == second
    assert "evaluate on worker 0, fit on worker 1" in first


def test_a_failure_of_another_worker_ends_the_wait():
    agreement = Agreement(0, 3, Nobody(), failures=lambda: [None, None, "ValueError: no data"])
    with pytest.raises(TrainingError, match="worker 2 has failed: ValueError: no data"):
        agreement.exchange("fit", None)


def test_waiting_is_reported_and_ends():
    lines, seconds = [], iter(range(0, 10_000, 20))

    agreement = Agreement(
        1, 2, Nobody(), timeout_seconds=100, clock=lambda: next(seconds), report=lines.append
    )
    with pytest.raises(UserError, match="worker 1 has waited 120 seconds for worker 0 at fit"):
        agreement.exchange("fit", None)
    assert lines == [
        f"kdist: worker 1 is at fit, and has waited {waited} seconds for worker 0"
        for waited in (40, 80)
    ]


def test_a_worker_with_long_work_is_waited_for_longer():
    seconds, asked = iter(range(0, 10_000, 20)), []

    agreement = Agreement(
        1,
        2,
        Nobody(),
        timeout_seconds=100,
        may_take_longer=lambda: asked.append(None) or len(asked) < 4,
        clock=lambda: next(seconds),
        report=lambda line: None,
    )
    with pytest.raises(UserError, match="has waited 180 seconds for worker 0"):
        agreement.exchange("fit", None)
    assert len(asked) == 4  # from 120 seconds on
