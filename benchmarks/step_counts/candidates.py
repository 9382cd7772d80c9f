"""Models of the counted steps: without a strategy, with TensorFlow's and with kdist's."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kdist
import keras
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from ..networks import (
    CLASSES,
    Network,
    make_lstm,
    make_model,
    make_momentum_sgd,
    make_transformer,
    make_wide_resnet,
)
from .step_graph import StepGraph

ROWS = 11
"""Samples of each replica; no size of a weight is a multiple of this number."""


def _make_application(make: Callable[..., Any]) -> Network:
    shape = (32, 32, 3)
    return Network(lambda: make(weights=None, input_shape=shape, classes=CLASSES), shape)


TEXTS = {"words": 1000, "tokens": 8, "width": 32}
NETWORKS = {
    "wrn-16-1": make_wide_resnet(16, 1, size=8, dropout=0.01),
    "resnet50": _make_application(keras.applications.ResNet50),
    "mobilenetv2": _make_application(keras.applications.MobileNetV2),
    "transformer": make_transformer(**TEXTS, heads=2, layers=2, has_positions=False),
    "lstm": make_lstm(**TEXTS, use_cudnn=False),  # logical CPUs have no cuDNN
}


def split_cpu(count: int) -> None:
    """Make logical CPUs, and hide GPUs."""
    tf.config.set_visible_devices([], "GPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    tf.get_logger().setLevel("ERROR")


def run_step(network: Network, kind: str, replicas: int, *, unknown_size: bool) -> StepGraph:
    """Run two training steps of a candidate, and return the graph of the second.

    Args:
        network: The model.
        kind: `"plain"` for no strategy, `"stock"` for TensorFlow's with synchronized batch norm,
            or `"kdist"`.
        replicas: The number of replicas.
        unknown_size: Whether the number of samples of a batch is unknown when the step is traced.
    """
    keras.utils.clear_session()  # layers and operations have the names of a first model
    model = make_candidate(network, kind, replicas, jit_compile=False)
    batches = _make_batches(network, ROWS * replicas, unknown_size)
    context.context().enable_run_metadata()
    try:
        model.fit(batches, verbose=0, shuffle=False)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_run_metadata()
    step = max(graphs, key=lambda each: sum(len(part.node) for part in each.partition_graphs))
    return StepGraph(step.partition_graphs, _count_runs(model, batches), ROWS)


def make_candidate(network: Network, kind: str, replicas: int, **options: Any) -> Any:
    """Return a candidate's model, compiled with SGD with momentum and options of `compile`."""
    return make_model(
        network._replace(optimizer=make_momentum_sgd), _make_strategy(kind, replicas), **options
    )


class _Stock(tf.distribute.MirroredStrategy):
    """TensorFlow's strategy; several can train in a process."""


class _OnGpus(kdist.MirroredStrategy):
    """kdist's strategy, with the iterators of GPUs."""

    on_gpus = True


def _make_strategy(kind: str, replicas: int) -> Any:
    if kind == "plain":
        return None
    devices = [f"CPU:{number}" for number in range(replicas)]
    if kind == "kdist":
        strategy = _OnGpus(devices)
    else:
        strategy = _Stock(devices)
        _Stock._collective_key_base += 1000  # TensorFlow numbers the groups of all strategies alike
    # As on GPUs: sums of all sizes are collectives, in order.
    extended = strategy.extended
    extended._cross_device_ops = extended._collective_ops
    for launcher in extended._collective_ops._launchers:
        launcher._is_of_cpu = False
    return strategy


def _make_batches(network: Network, rows: int, unknown_size: bool) -> Any:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    samples = tf.data.Dataset.from_tensor_slices(network.random_samples(rows))
    return samples.batch(rows, drop_remainder=not unknown_size).with_options(options)


def _count_runs(model: Any, batches: Any) -> Counter[tuple[str, str]]:
    """Train a step; return the number of runs of each operation, by its name and type."""
    details = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=3, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tf.profiler.experimental.Profile(folder, details):
            model.fit(batches, verbose=0, shuffle=False)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = xplane_pb2.XSpace.FromString(file.read_bytes()).planes
    counts: Counter[tuple[str, str]] = Counter()
    for plane in planes:
        for line in plane.lines:
            for event in line.events:
                name, _, op = plane.event_metadata[event.metadata_id].name.rpartition(":")
                counts[name, op] += 1
    return counts
