"""Workers as threads, with a dictionary for a store and a clock that the test moves."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kdist.workers import hang_detection
from kdist.workers.hang_detection import HANG_EXIT_CODE, HangWatch, describe_states
from worker_store import WorkerStore


class Worker:
    """A worker's watch, what it has reported, and how it has ended."""

    def __init__(self, worker=0, workers=1, keys=None, seconds=60, abort=lambda: None):
        self.now, self.lines, self.codes, self.dumps = 0.0, [], [], 0
        self.watch = HangWatch(
            worker,
            workers,
            keys or WorkerStore(),
            seconds=seconds,
            clock=lambda: self.now,
            report=self.lines.append,
            dump=self.dump,
            abort=abort,
            end=self.codes.append,
        )

    def dump(self):
        self.dumps += 1

    def check_at(self, now):
        self.now = now
        self.watch.check()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(hang_detection, "_LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(hang_detection, "_POLL_SECONDS", 0.01)


def test_a_step_that_takes_too_long_ends_the_worker_with_its_stacks():
    worker = Worker()
    with worker.watch.watch("fit"):
        worker.watch.step_began()
        worker.watch.step_ended()
        worker.watch.step_began()
        worker.check_at(59)
        assert worker.codes == []
        worker.check_at(60)
        worker.watch._is_ending = False  # it has not ended, in this test
    assert worker.codes == [HANG_EXIT_CODE]
    assert worker.dumps == 1
    assert worker.lines[0] == "kdist: no step has ended for 60 seconds; the stacks of worker 0:"
    assert (
        "the worker is stuck (worker 0: 1 steps done, loading data or computing, in fit)"
        in worker.lines[1]
    )


def test_steps_that_end_keep_the_worker():
    worker = Worker()
    with worker.watch.watch("fit"):
        for now in range(0, 600, 50):
            worker.check_at(now)
            worker.watch.step_began()
            worker.watch.step_ended()
    assert worker.codes == []


@pytest.mark.parametrize("what", ["first", "traced", "saving"])
def test_a_first_step_a_trace_and_a_save_may_take_ten_times_as_long(what):
    worker = Worker()
    with worker.watch.watch("fit"):
        if what != "first":
            worker.watch.step_began()
            worker.watch.step_ended()
        if what == "traced":
            worker.watch.step_began()
            worker.watch.record_trace()
        if what == "saving":
            with worker.watch.slow("saving a model"):
                worker.check_at(599)
                assert worker.codes == []
        worker.check_at(599)
        assert worker.codes == []
        worker.check_at(1199)
        worker.watch._is_ending = False
    assert worker.codes == [HANG_EXIT_CODE]


def test_outside_of_fit_nothing_is_limited():
    worker = Worker()
    with worker.watch.watch("fit"):
        worker.watch.step_ended()
    worker.check_at(10**6)
    assert worker.codes == []


def in_step(watch):
    watch.step_began()
    watch.step_ended()
    watch.step_began()


def hang_in_step(watch):
    watch._activities.append("fit")  # `watch.watch` would hold a worker that is about to end
    in_step(watch)


def test_a_worker_that_waits_for_a_saving_worker_goes_on():
    keys = WorkerStore()
    chief, other = (Worker(worker, 2, keys) for worker in range(2))
    with chief.watch.watch("fit"), other.watch.watch("fit"):
        in_step(chief.watch)
        in_step(other.watch)
        with chief.watch.slow("saving a model"):
            chief.check_at(50)
            assert other.watch.is_other_slow()
            assert not chief.watch.is_other_slow()
            other.check_at(100)
            assert other.codes == []
        # The chief has saved, and both go on.
        for one in (chief, other):
            one.now = 100
            one.watch.step_ended()
            one.check_at(101)
        assert set(keys.values) == set()


@pytest.mark.parametrize("stuck", [0, 1])
def test_all_print_their_stacks_and_say_for_whom_they_wait(stuck, monkeypatch):
    """If collectives fail, workers that wait in one leave `fit`, and a stuck worker does not."""
    monkeypatch.setattr(hang_detection, "_LEAVE_SECONDS", 0.2)
    keys = WorkerStore()
    workers = [Worker(worker, 2, keys) for worker in range(2)]
    waiting = workers[1 - stuck].watch
    waiting._abort = waiting._has_left.set  # as the end of `watch.watch` does
    for worker in workers:
        hang_in_step(worker.watch)
        worker.now = 70.0
    with ThreadPoolExecutor(2) as pool:
        # The one that is stuck learns of it from the other.
        list(pool.map(lambda one: one.watch.check(), workers))
    for worker in workers:
        assert worker.codes[0] == HANG_EXIT_CODE
        assert worker.dumps == 1
        assert f"the other workers wait for worker {stuck} (" in worker.lines[-1]
        assert (
            f"worker {1 - stuck}: 1 steps done, waits for other workers in fit" in worker.lines[-1]
        )


def test_a_worker_that_is_elsewhere_ends_with_the_others():
    keys = WorkerStore()
    chief, other = (Worker(worker, 2, keys) for worker in range(2))
    hang_in_step(other.watch)
    with chief.watch.waiting("a test"):
        chief.now = other.now = 80.0
        with ThreadPoolExecutor(2) as pool:
            second = pool.submit(other.watch.check)
            while not second.done() and not chief.codes:
                chief.watch.check()
            second.result()
    assert chief.codes == other.codes == [HANG_EXIT_CODE]
    assert "neither fit, evaluate nor predict, at a test" in chief.lines[-1]


def test_a_store_that_fails_does_not_keep_a_worker():
    worker = Worker(1, 2, keys=object())
    hang_in_step(worker.watch)
    worker.check_at(100)
    assert worker.codes == [HANG_EXIT_CODE]
    assert "worker 0 does not answer" in worker.lines[-1]


def _state(marks, *, waits):
    return {"marks": marks, "steps": 3, "in_step": False, "doing": "fit", "waits": waits}


@pytest.mark.parametrize(
    ("states", "who"),
    [
        ({0: _state(7, waits=True), 1: None, 2: None}, "workers 1 and 2 do not answer"),
        (
            {0: _state(7, waits=True), 1: _state(7, waits=False)},
            "the other workers wait for worker 1",
        ),
        ({0: _state(7, waits=True), 1: _state(8, waits=True)}, "worker 0 is behind"),
        (
            {0: _state(7, waits=False), 1: _state(7, waits=False)},
            "all workers are in the same step",
        ),
        ({0: _state(7, waits=False)}, "the worker is stuck"),
    ],
)
def test_the_summary_names_who_is_behind(states, who):
    assert f"no step has ended for 60 seconds: {who} (worker 0: 3 steps" in describe_states(
        states, 60.0
    )
