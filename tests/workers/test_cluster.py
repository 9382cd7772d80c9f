import json

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.workers.multi_worker_strategy import shard_by_data
from kdist.workers.tf_config import check_tf_config, find_cluster, slurm_port
from replicas import assert_close, fit

CLUSTER = {"worker": ["a:1", "b:2"]}


def config(**changes):
    return json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}} | changes)


@pytest.mark.parametrize("text", ["", "{}", config(), config(cluster={}), config(cluster=None)])
def test_a_cluster_with_this_process_or_none_is_accepted(text):
    check_tf_config(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'cluster': {}}", "TF_CONFIG is not JSON"),
        (config(task={}), "task type None, but its cluster has only 'worker'"),
        (config(task={"type": "chief", "index": 0}), "task type 'chief'"),
        (config(task={"type": "worker", "index": 2}), "indices are 0 to 1"),
        (config(task={"type": "worker"}), "task index None"),
        (config(cluster={**CLUSTER, "ps": ["c:3"]}), "tasks of the type 'ps'"),
        (config(cluster=["a:1"]), "expected text such as"),
        (config(cluster={"worker": 3}), "expected text such as"),
        ("3", "expected text such as"),
    ],
)
def test_a_cluster_without_this_process_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        check_tf_config(text)


def test_the_environment_names_the_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert not find_cluster().cluster_spec().as_dict()
    for text in ("", "{}", '{"environment": "cloud"}', '{"cluster": {}}'):
        monkeypatch.setenv("TF_CONFIG", text)
        assert not find_cluster().cluster_spec().as_dict(), text
    monkeypatch.delenv("TF_CONFIG")
    slurm = {"PROCID": "2", "STEP_NUM_TASKS": "3", "STEP_NODELIST": "n[2,10]", "JOB_ID": "7"}
    for name, value in (slurm | {"STEP_TASKS_PER_NODE": "2,1"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    found = find_cluster()
    port = slurm_port({"SLURM_JOB_ID": "7"})
    assert found.cluster_spec().as_dict() == {
        "worker": [f"n2:{port}", f"n2:{port + 1}", f"n10:{port}"]
    }
    assert (found.task_type, found.task_id) == ("worker", 2)
    monkeypatch.setenv("TF_CONFIG", config())
    assert find_cluster().cluster_spec().as_dict() == CLUSTER


def test_jobs_that_share_a_machine_have_other_ports():
    jobs = [{"SLURM_JOB_ID": str(job)} for job in range(123_000, 124_000)]
    ports = [slurm_port(job) for job in jobs]
    assert len(set(ports)) == 1000
    steps = [slurm_port({**jobs[0], "SLURM_STEP_ID": str(step)}) for step in range(61)]
    assert len(set(steps)) == 61
    assert min(abs(one - other) for one in ports for other in ports if one != other) >= 20
    assert min(ports) > 1024
    assert max(ports) < 32_768  # where ports for outgoing connections begin


def test_without_a_cluster_there_is_one_worker():
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=2)
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    assert (strategy.workers, strategy.worker, strategy.is_chief) == (1, 0, True)
    assert strategy.num_replicas_in_sync == 2
    assert repr(strategy) == (
        "<kdist.MultiWorkerMirroredStrategy, worker 0 of 1, 2 replicas: CPU:0, CPU:1 here>"
    )


def test_a_single_worker_trains_like_a_mirrored_strategy():
    x, y = np.random.default_rng(0).normal(size=(2, 11, 3))

    def make():
        norm = keras.layers.BatchNormalization()
        return keras.Sequential([keras.Input((3,)), norm, keras.layers.Dense(3)])

    weights = [
        fit(kind(replicas=2), make, x, y, metrics=["mae"], steps_per_execution=2).get_weights()
        for kind in (kdist.MirroredStrategy, *[kdist.MultiWorkerMirroredStrategy] * 2)
    ]
    for other in weights[1:]:
        assert_close(other, weights[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "replicas has to be at least 1"),
        ({"cluster_resolver": CLUSTER}, "received dict for cluster_resolver"),
        (
            {
                "cluster_resolver": tf.distribute.cluster_resolver.SimpleClusterResolver(
                    tf.train.ClusterSpec(CLUSTER), task_type="worker", task_id=0
                )
            },
            "TensorFlow has already started",
        ),
    ],
)
def test_invalid_arguments_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        tf.constant(0)
        kdist.MultiWorkerMirroredStrategy(**options)


def test_batches_are_dealt_out_by_rows_unless_the_user_has_chosen():
    def policy(dataset):
        return dataset.options().experimental_distribute.auto_shard_policy

    data = tf.data.Dataset.range(8).batch(4)
    policies = tf.data.experimental.AutoShardPolicy
    assert policy(shard_by_data(data)) == policies.DATA
    for chosen in (policies.OFF, policies.FILE):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = chosen
        with pytest.warns(UserWarning, match=f"auto_shard_policy={chosen.name}"):
            assert policy(shard_by_data(data.with_options(options))) == chosen
