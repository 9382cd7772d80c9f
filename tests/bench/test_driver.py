import os
import sys

import pytest
from kdist.bench import driver
from kdist.bench.benchmark import Benchmark, Candidate
from kdist.bench.benchmarks import KERAS, ONE, tiny

# Speaks a worker's protocol without TensorFlow, and notes each of its turns in a file.
WORKER = """
import json, sys
name, notes, end = sys.argv[1:]
said = {"skip": {"skipped": "no library"}, "fail": {"failed": "ValueError: no"}}
print(name, "starts", file=open(notes + "-starts", "a"))
facts = {"images": 10, "start_seconds": 7.5}
print(json.dumps(said.get(end, {"facts": facts, "peak_mib": 4})), flush=True)
turns = 0
for _ in sys.stdin if end not in said else ():
    turns += 1
    if end == "die" and turns == 2:
        sys.exit(3)
    print(name, file=open(notes, "a"))
    print(json.dumps({"seconds": turns, "peak_mib": 5}), flush=True)
"""


@pytest.fixture
def benchmark(monkeypatch, tmp_path):
    """A function from candidates' names and ends to their outcomes, lines and turns."""
    notes = tmp_path / "notes"
    notes.touch()

    def command(candidate):
        end = candidate.settings["end"]
        return [sys.executable, "-c", WORKER, candidate.name, str(notes), end]

    monkeypatch.setattr(driver, "command", command)

    def run(rounds=4, measured="work", **ends):
        candidates = [
            Candidate(name=name, workload="", settings={"end": end}) for name, end in ends.items()
        ]
        lines = []
        benchmark = Benchmark(title="benchmark", candidates=candidates, measured=measured)
        outcomes = driver.run_benchmark(benchmark, rounds=rounds, announce=lines.append)
        return outcomes, lines, notes.read_text().split()

    return run


def test_every_other_round_goes_backwards(benchmark):
    outcomes, _, turns = benchmark(a="", b="", c="")
    assert "".join(turns) == "abccbaabccba"
    assert outcomes["b"].seconds == [1, 2, 3, 4]
    assert outcomes["b"].facts == {"images": 10, "start_seconds": 7.5}
    assert outcomes["b"].peak_mib == 5
    assert outcomes["b"].skipped == ""


@pytest.mark.parametrize(("end", "why"), [("skip", "no library"), ("fail", "ValueError: no")])
def test_a_candidate_that_cannot_run_is_skipped_with_the_reason(benchmark, end, why):
    outcomes, lines, turns = benchmark(rounds=2, a="", b=end)
    assert turns == ["a", "a"]
    assert outcomes["b"].skipped == why
    assert outcomes["b"].seconds == []
    assert f"  skipped: {why}" in lines


def test_a_candidate_that_dies_does_not_stop_the_others(benchmark):
    outcomes, lines, turns = benchmark(a="die", b="")
    assert turns == ["a", "b", "b", "b", "b"]
    assert outcomes["a"].skipped == "its process ended with exit code 3"
    assert len(outcomes["b"].seconds) == 4


def test_a_process_for_each_turn(benchmark, tmp_path):
    outcomes, lines, turns = benchmark(rounds=2, measured="start", a="", b="fail", c="")
    assert turns == []
    starts = (tmp_path / "notes-starts").read_text().split()[::2]
    assert starts == ["a", "b", "c", "c", "a"]
    assert outcomes["a"].seconds == outcomes["c"].seconds == [7.5, 7.5]
    assert outcomes["a"].peak_mib == 4
    assert (outcomes["b"].seconds, outcomes["b"].skipped) == ([], "ValueError: no")
    assert "  b skipped: ValueError: no" in lines


def test_a_benchmark_of_nobody_has_no_rounds(benchmark):
    _, lines, turns = benchmark(a="skip")
    assert turns == []
    assert not any("round" in line for line in lines)


def test_workers_end_with_the_benchmark(benchmark):
    before = set(os.listdir("/proc"))
    benchmark(a="", b="")
    new = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid not in before]
    assert not [pid for pid in new if _parent(pid) == str(os.getpid())]


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[1]
    except OSError:  # it has ended meanwhile
        return ""


def test_the_fastest_by_median():
    outcomes = {
        "slow": driver.Outcome(seconds=[3, 3, 3]),
        "fast": driver.Outcome(seconds=[1, 9, 1]),
        "absent": driver.Outcome(skipped="no library"),
    }
    assert driver.fastest(outcomes, ["slow", "fast", "absent", "unknown"], 2) == ["fast", "slow"]


def test_stock_candidates_import_tensorflow_first():
    stock, *_, own = (driver.command(candidate)[2] for candidate in tiny().candidates)
    assert stock.startswith("import tensorflow; ")
    assert own.startswith("from kdist")


def test_real_workers_train(monkeypatch):
    """Stock Keras and kdist in processes of their own, the smallest of the real benchmarks."""
    benchmark = tiny()
    benchmark.candidates[:] = [c for c in benchmark.candidates if c.name in (KERAS, ONE)]
    for candidate in benchmark.candidates:
        candidate.settings.update(batch=4, steps=8)
    outcomes = driver.run_benchmark(benchmark, rounds=1, announce=lambda line: None)
    for outcome in outcomes.values():
        assert not outcome.skipped
        assert outcome.seconds[0] > 0
        assert outcome.facts["images"] == 32
        assert {"tensorflow", "keras", "numpy"} <= outcome.facts["versions"].keys()
    assert ONE in outcomes
