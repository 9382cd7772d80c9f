"""Groups of worker processes: what they do, and the model that one replica gives.

Each test is one group, as it takes longest to start.
"""

import group
import pytest
from behaviours_on_workers import CASES as BEHAVIOURS

pytestmark = pytest.mark.slow

# What two workers of two replicas do below, one replica each need not.
TWO_BY_ONE = (
    "fewer_samples_than_replicas",
    "resumed",
    "bn_masked_uneven",
    "kdist_bn_uneven",
    "ema_overwrite_uneven",
    "accumulation_clipnorm_bn_uneven",
    "reduce_on_plateau",
    "sample_weight_zero_on_one_replica",
    "custom_metric_uneven",
    "two_heads_eagerly",
    "metrics_uneven",
    "loss_mean_with_sample_weight_weighted",
    "steps_per_execution_3_uneven",
    "validation_data",
    "dataset_dropping_the_rest",
    "py_dataset",
    "generator",
    "batch_by_batch_weighted",
    "compiled_outside_the_scope_loss_scale",
    "mixed_float16",
    "custom_step_clipped_and_accumulated",
    "custom_step_gathered_uneven",
    "custom_contrastive_loss_uneven",
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
    "resumes_bit_for_bit",
)
THREE_BY_ONE = (
    "batch_smaller_than_replicas",
    "bn_uneven",
    "custom_step_steps_per_execution",
    "dropout_batch_by_batch",
    "goes_on_with_other_workers",
)

DIVIDED = (
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workers")


def check(kind, names, folder, *, workers, replicas=1):
    own = folder / f"{kind}_{workers}x{replicas}"
    found = group.run_group(kind, names, own, workers=workers, replicas=replicas)
    failed = {name: problems for name, problems in found.items() if any(problems)}
    assert not failed, f"{failed}\n{group.output(own)}"
    assert set(found) == set(names), group.output(own)


def test_two_workers_work_together(folder):
    check("behaviours", tuple(BEHAVIOURS), folder, workers=2)


def test_two_workers_give_what_one_replica_gives(folder):
    check("parity", TWO_BY_ONE, folder, workers=2)


def test_two_workers_of_two_replicas_give_what_one_gives(folder):
    check("parity", TWO_BY_TWO, folder, workers=2, replicas=2)


def test_three_workers_give_what_one_replica_gives(folder):
    check("parity", THREE_BY_ONE, folder, workers=3)


@pytest.mark.parametrize(("divided", "replicas"), [("state", 2), ("weights", 1), ("weights", 2)])
def test_workers_divide_variables(divided, replicas, folder, monkeypatch):
    monkeypatch.setenv("DIVIDED", divided)
    check("parity", DIVIDED, folder / divided, workers=2, replicas=replicas)


def test_a_worker_that_reads_divided_state_alone_is_told(folder, monkeypatch):
    monkeypatch.setenv("DIVIDED", "state")
    own = folder / "reading"
    ((first, _),) = group.run_group("failing", ("reading_alone",), own, workers=2).values()
    assert "reading a divided variable on worker 0, fit on worker 1" in first, group.output(own)


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
