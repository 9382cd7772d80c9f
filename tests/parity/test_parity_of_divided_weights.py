"""Weights divided over the replicas: the model that one replica gives."""

import harness
import kdist
import pytest
from cases import CASES, on_one_replica
from kdist.spmd import partition

pytestmark = pytest.mark.usefixtures("without_graph_optimizer", "small")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Gather few weights for a stage: the models of the cases are small."""
    monkeypatch.setattr(partition, "WEIGHT_BYTES", 2000)


def check(name, replicas, **options):
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_weights=True)
    expected = harness.train(CASES[name], **options) if options else on_one_replica(name)
    got = harness.train(CASES[name], strategy, **options)
    gaps = harness.differences(expected, got)
    assert not harness.too_large(CASES[name], gaps), gaps


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_three_replicas_give_what_one_gives(name):
    check(name, replicas=3)
