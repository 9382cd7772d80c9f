"""Groups of worker processes: strategies of several workers, and the model that one replica gives.

Each test is one group, as the start of a group takes longest.
"""

import group
import pytest
from behaviours_on_workers import CASES as BEHAVIOURS

pytestmark = pytest.mark.slow

# Cases of the other groups are left out here.
TWO_BY_ONE = (
    "fewer_samples_than_replicas",
    "resumed",
    "bn_masked_uneven",
    "reduce_on_plateau",
    "sample_weight_zero_on_one_replica",
    "custom_metric_uneven",
    "two_heads_eagerly",
    "metrics_uneven",
    "validation_data",
    "dataset_dropping_the_rest",
    "py_dataset",
    "generator",
    "compiled_outside_the_scope_loss_scale",
    "mixed_float16",
    "custom_step_clipped_and_accumulated",
    "custom_step_gathered_uneven",
    "stateful_rnn",
    "augmentation_uneven",
)
TWO_BY_TWO = (
    "uneven_last_batch",
    "kdist_bn_fewer_samples_than_replicas",
    "embedding_global_clipnorm_uneven",
    "batch_by_batch",
    "two_heads_uneven",
    "custom_pairs_objective_uneven",
    "position_embedding_clipped_uneven",
    "dropout_uneven",
)
THREE_BY_ONE = (
    "batch_smaller_than_replicas",
    "bn_uneven",
    "custom_step_steps_per_execution",
    "dropout_batch_by_batch",
    "goes_on_with_other_workers",
)

DIVIDED_WEIGHTS = (
    "optimizer_Adam",
    "optimizer_LossScaleOptimizer",
    "optimizer_Muon",
    "optimizer_Adagrad",
    "accumulation_clipnorm_bn_uneven",
    "global_clipnorm_uneven",
    "ema_overwrite_uneven",
    "embedding_accumulation_uneven",
    "embedding_of_many_words_uneven",
    "steps_per_execution_3_uneven",
    "batch_by_batch_weighted",
    "custom_step_clipped_and_accumulated",
    "resumed",
    "is_saved_by_kerass_callback",
)
DIVIDED_WEIGHTS_OF_SINGLE_REPLICAS = (
    "starts_with_the_chiefs_weights",
    "saves_metrics_of_many_values",
    "optimizer_Adam",
    "global_clipnorm_uneven",
    "embedding_accumulation_uneven",
    "resumed",
    "is_saved_by_kerass_callback",
)
DIVIDED_STATE = (
    "optimizer_LossScaleOptimizer",
    "optimizer_Muon",
    "accumulation_clipnorm_bn_uneven",
    "ema_overwrite_uneven",
    "embedding_accumulation_uneven",
    "resumed",
    "is_saved_by_kerass_callback",
    "refuses_to_read_divided_state_alone",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of all groups and of the results of one replica, which the groups share."""
    return tmp_path_factory.mktemp("workers")


def check_group(names, folder, *, workers, replicas=1):
    results = group.run_group("parity", names, folder, workers=workers, replicas=replicas)
    failed = {name: problems for name, problems in results.items() if any(problems)}
    assert not failed, f"{failed}\n{group.output(folder)}"
    assert set(results) == set(names), group.output(folder)


def test_two_workers_work_together_and_give_what_one_replica_gives(folder):
    check_group((*BEHAVIOURS, *TWO_BY_ONE), folder / "two_by_one", workers=2)


def test_two_workers_of_two_replicas_give_what_one_gives(folder):
    check_group(TWO_BY_TWO, folder / "two_by_two", workers=2, replicas=2)


def test_three_workers_give_what_one_replica_gives(folder):
    check_group(THREE_BY_ONE, folder / "three_by_one", workers=3)


@pytest.mark.parametrize(
    ("divided", "replicas", "names"),
    [
        ("state", 2, DIVIDED_STATE),
        ("weights", 1, DIVIDED_WEIGHTS_OF_SINGLE_REPLICAS),
        ("weights", 2, DIVIDED_WEIGHTS),
    ],
    ids=["state", "weights of single replicas", "weights"],
)
def test_workers_divide_variables(divided, replicas, names, folder, monkeypatch):
    monkeypatch.setenv("DIVIDED", divided)
    check_group(names, folder / f"{divided}_{replicas}", workers=2, replicas=replicas)


def test_a_worker_that_hangs_ends_all_with_their_stacks(folder, monkeypatch):
    # No step is watched but the second: the first may take ten times as long.
    monkeypatch.setenv("HANG_SECONDS", "8")
    own = folder / "hanging"
    found = group.run_group("hanging", ("train",), own, workers=2, case_seconds=600)
    output = group.output(own)
    assert found == {}, output
    assert (
        output.count("the other workers wait for worker 1 (worker 0: 1 steps done, waits") == 2
    ), output
    assert "hanging_on_workers.py" in output


def test_a_failure_ends_the_others_with_its_message(folder):
    names = ("while_others_compare", "while_others_train")
    for name in names:
        own = folder / name
        ((first, second),) = group.run_group("failing", (name,), own, workers=2).values()
        assert "ValueError: my own mistake" in first, group.output(own)
        assert "ValueError: my own mistake" in second
