import os
import sys

import pytest
from kdist.bench import driver
from kdist.bench.races import KERAS, ONE, Contestant, Race, tiny

# Speaks a worker's protocol without TensorFlow, and notes each of its turns in a file.
WORKER = """
import json, sys
name, notes, end = sys.argv[1:]
said = {"skip": {"skipped": "no library"}, "fail": {"failed": "ValueError: no"}}
print(json.dumps(said.get(end, {"facts": {"images": 10}})), flush=True)
turns = 0
for _ in sys.stdin if end not in said else ():
    turns += 1
    if end == "die" and turns == 2:
        sys.exit(3)
    print(name, file=open(notes, "a"))
    print(json.dumps({"seconds": turns, "peak_mib": 5}), flush=True)
"""


@pytest.fixture
def race(monkeypatch, tmp_path):
    """A function from contestants' names and ends to their outcomes, lines and turns."""
    notes = tmp_path / "notes"
    notes.touch()

    def command(contestant):
        end = contestant.settings["end"]
        return [sys.executable, "-c", WORKER, contestant.name, str(notes), end]

    monkeypatch.setattr(driver, "command", command)

    def run(rounds=4, **ends):
        contestants = [
            Contestant(name=name, program="", settings={"end": end}) for name, end in ends.items()
        ]
        lines = []
        race = Race(title="race", contestants=contestants)
        outcomes = driver.run_race(race, rounds=rounds, announce=lines.append)
        return outcomes, lines, notes.read_text().split()

    return run


def test_every_other_round_goes_backwards(race):
    outcomes, _, turns = race(a="", b="", c="")
    assert "".join(turns) == "abccbaabccba"
    assert outcomes["b"].seconds == [1, 2, 3, 4]
    assert outcomes["b"].facts == {"images": 10}
    assert outcomes["b"].peak_mib == 5
    assert outcomes["b"].left_out == ""


@pytest.mark.parametrize(("end", "why"), [("skip", "no library"), ("fail", "ValueError: no")])
def test_who_cannot_take_part_is_left_out_with_the_reason(race, end, why):
    outcomes, lines, turns = race(rounds=2, a="", b=end)
    assert turns == ["a", "a"]
    assert outcomes["b"].left_out == why
    assert outcomes["b"].seconds == []
    assert f"  left out: {why}" in lines


def test_who_dies_does_not_stop_the_others(race):
    outcomes, lines, turns = race(a="die", b="")
    assert turns == ["a", "b", "b", "b", "b"]
    assert outcomes["a"].left_out == "its process ended with exit code 3"
    assert len(outcomes["b"].seconds) == 4


def test_a_race_of_nobody_has_no_rounds(race):
    _, lines, turns = race(a="skip")
    assert turns == []
    assert not any("round" in line for line in lines)


def test_workers_end_with_the_race(race):
    before = set(os.listdir("/proc"))
    race(a="", b="")
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
        "absent": driver.Outcome(left_out="no library"),
    }
    assert driver.fastest(outcomes, ["slow", "fast", "absent", "unknown"], 2) == ["fast", "slow"]


def test_stock_contestants_import_tensorflow_first():
    stock, *_, own = (driver.command(contestant)[2] for contestant in tiny().contestants)
    assert stock.startswith("import tensorflow; ")
    assert own.startswith("from kdist")


def test_real_workers_train(monkeypatch):
    """Stock Keras and kdist in processes of their own, the smallest of the real races."""
    race = tiny()
    race.contestants[:] = [c for c in race.contestants if c.name in (KERAS, ONE)]
    for contestant in race.contestants:
        contestant.settings.update(batch=4, steps=8)
    outcomes = driver.run_race(race, rounds=1, announce=lambda line: None)
    for outcome in outcomes.values():
        assert not outcome.left_out
        assert outcome.seconds[0] > 0
        assert outcome.facts["images"] == 32
        assert {"tensorflow", "keras", "numpy"} <= outcome.facts["versions"].keys()
    assert ONE in outcomes
