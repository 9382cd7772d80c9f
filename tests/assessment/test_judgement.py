"""What is said of facts that are given, without a training."""

import dataclasses

import pytest
from kdist.assessment import options
from kdist.assessment.facts import Epoch, Facts, Images, read_facts
from kdist.assessment.judgement import has_passed, judge
from kdist.assessment.targets import accuracy, targets_of
from kdist.data.datasets import DATASETS
from kdist.errors import UserError

NAMES = ("targets", "seconds", "replicas", "scaled", "warm-up", "parts", "metrics")
TARGETS = targets_of(2, "CIFAR-10")


def epoch(**changes):
    values = {"accuracy": 0.6, "val_accuracy": 0.8}
    facts = {"seconds": 50.0, "rows": [500, 500], "repeated": 0, "values": values, "validated": 200}
    return Epoch(**{**facts, **changes})


GOOD = Facts(
    images=Images(name="CIFAR-10", training=1000, test=200),
    largest_step=64,
    rates=[(0, 0.01), (10, 0.04), (20, 0.03)],
    epochs=[epoch(), epoch(seconds=100.0)],
)
ALONE = Facts(rates=[(0, 0.01), (10, 0.02)])


def missed(facts=GOOD, alone=ALONE, targets=TARGETS, replicas=2, **changes):
    lines = judge(dataclasses.replace(facts, **changes), alone, targets, replicas=replicas)
    found = [name for name, line in zip(NAMES, lines, strict=True) if not line.passed]
    assert has_passed(lines) == (not found)
    return found


def test_all_lines_are_passed():
    assert missed() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Met in no two epochs running.
        ({"epochs": [epoch(), epoch(values={"val_accuracy": 0.7}), epoch()]},
         ["targets", "seconds"]),
        ({"epochs": [epoch(), epoch(values={"val_accuracy": float("nan")})]},
         ["targets", "seconds"]),
        ({"epochs": [epoch(), epoch(seconds=300.1)]}, ["seconds"]),
        ({"epochs": [epoch(), epoch(seconds=299.9)]}, []),
        # Of generation 2, equal is enough; in float32.
        ({"epochs": 2 * [epoch(values={"val_accuracy": 0.75})]}, []),
        ({"epochs": 2 * [epoch(rows=[1000, 0])]}, ["replicas"]),
        ({"epochs": 2 * [epoch(rows=[1000])]}, ["replicas"]),
        ({"rates": [(0, 0.01), (10, 0.02)]}, ["scaled"]),
        ({"rates": [(0, 0.01), (10, 0.02 * 2**0.5)]}, []),  # the square root rule
        ({"rates": [(0, 0.01), (5, 0.015)], "planned_peak": 0.04}, ["warm-up"]),  # 5 steps
        ({"rates": [(0, 0.04), (10, 0.04)]}, ["warm-up"]),
        ({"rates": [(0, 0.035), (10, 0.04)]}, ["warm-up"]),  # begins above that of one
        ({"rates": []}, ["scaled", "warm-up"]),
        ({"epochs": 2 * [epoch(rows=[1000, 1000])]}, ["parts"]),
        ({"epochs": 2 * [epoch(repeated=100)]}, ["parts"]),
        ({"epochs": 2 * [epoch(repeated=10)]}, []),  # images that the set has twice
        ({"epochs": 2 * [epoch(rows=[250, 250])]}, ["parts"]),
        ({"epochs": 2 * [epoch(rows=[470, 470])]}, []),  # without the last batch
        ({"epochs": 2 * [epoch(validated=100)]}, ["metrics"]),
        ({"epochs": [epoch(validated=200), epoch(validated=100)]}, ["metrics"]),
        ({"epochs": 2 * [epoch(validated=0)]}, ["metrics"]),
        ({"images": None}, ["parts", "metrics"]),
    ],
)  # fmt: skip
def test_what_is_missed(changes, expected):
    assert missed(**changes) == expected


def test_the_first_generation_has_a_target_of_training_too():
    first = targets_of(1, "CIFAR-10")
    assert missed(targets=first) == ["targets", "seconds"]
    values = {"sparse_categorical_accuracy": 0.76, "val_sparse_categorical_accuracy": 0.26}
    assert missed(targets=first, epochs=2 * [epoch(values=values)]) == []
    equal = {"acc": 0.75, "val_acc": 0.26}
    assert missed(targets=first, epochs=2 * [epoch(values=equal)]) == ["targets", "seconds"]


def test_one_replica_has_nothing_to_scale():
    alone = dataclasses.replace(GOOD, epochs=2 * [epoch(rows=[1000])])
    assert missed(alone, alone, replicas=1) == []


def test_without_an_epoch_there_is_one_line():
    (line,) = judge(Facts(error="ValueError: no"), Facts(), TARGETS, replicas=2)
    assert not line.passed
    assert str(line) == "NOT PASSED  the program runs: ValueError: no"
    (line,) = judge(Facts(), Facts(), TARGETS, replicas=2)
    assert "not completed an epoch" in line.found


@pytest.mark.parametrize(
    ("values", "prefix", "expected"),
    [
        ({"loss": 1.0}, "", None),
        ({"val_accuracy": 0.5}, "", None),
        ({"accuracy": 0.4, "val_accuracy": 0.5}, "val_", 0.5),
        ({"acc": 0.4}, "", 0.4),
        ({"sparse_top_k_categorical_accuracy": 0.9, "accuracy": 0.4}, "", 0.4),
        ({"categorical_accuracy": 0.4}, "", 0.4),
    ],
)
def test_accuracies_by_their_names(values, prefix, expected):
    assert accuracy(values, prefix) == expected


def test_facts_and_back(tmp_path):
    path = tmp_path / "facts.json"
    assert read_facts(path) == Facts()
    GOOD.write(path)
    assert read_facts(path) == GOOD


def test_a_data_set_without_a_recipe_is_assessed_with_a_script_alone(monkeypatch):
    bare = dataclasses.replace(DATASETS["cifar10"], title="CIFAR-100", targets={}, recipe=())
    monkeypatch.setattr(
        options, "DATASETS", {"fashion_mnist": DATASETS["fashion_mnist"], "cifar10": bare}
    )
    with pytest.raises(UserError, match="received dataset=cifar10, for which kdist has no recipe"):
        options.AssessOptions(dataset="cifar10")
    assert options.AssessOptions(dataset="cifar10", script=__file__).dataset == "cifar10"
    assert targets_of(1, "CIFAR-100") == targets_of(1, "Fashion-MNIST")
