"""What the Keras candidates of `speed.py` do in a turn, and the networks that they run."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import kdist
import keras
import numpy as np
import tensorflow as tf
from interleaved import timed
from kdist.models import WideResNet
from kdist.strategies.steps_per_execution import training_flops
from training_steps import EpochTimer, random_images

CLASSES, WORDS, TOKENS, COLUMNS = 10, 5000, 64, 32
tf.get_logger().setLevel("ERROR")
Arrays = tuple[Any, Any]


class Network(NamedTuple):
    """A model of ten classes, its data, and the optimizer that suits it."""

    make: Callable[[], Any]
    data: Callable[[int], Arrays]
    optimizer: Callable[[], Any] = keras.optimizers.Adam
    many_steps: bool = False  # an execution, as a single one is short


def network(name: str, *, depth: int, width: int, batch_norm: bool = True) -> Network:
    """Return a network; what comes after its name is for the WideResNet."""
    if name == "transformer":
        return Network(_transformer, _texts)
    if name == "lstm":
        return Network(_lstm, _texts)
    if name == "table":
        return Network(_table, _table_rows, many_steps=True)
    options: dict[str, Any] = {"input_shape": (28, 28, 1), "classes": CLASSES}
    if not batch_norm:
        options["batch_norm"] = _no_batch_norm
    return Network(
        lambda: WideResNet(depth, width, **options),
        random_images,
        lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    )


def _no_batch_norm(*, name: str, axis: int) -> Any:  # noqa: ARG001 - as a batch norm is called
    return keras.layers.Identity(name=name)


def _transformer() -> Any:
    """An encoder of 4 layers, 128 wide, with dropout, as in keras.io's text classifier."""
    width, heads, rate = 128, 4, 0.1
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = keras.layers.Embedding(WORDS, width)(tokens)
    x = x + keras.layers.Embedding(TOKENS, width)(keras.ops.arange(TOKENS))
    for _ in range(4):
        attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=rate)
        x = keras.layers.LayerNormalization()(x + attention(x, x))
        hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
        hidden = keras.layers.Dropout(rate)(keras.layers.Dense(width)(hidden))
        x = keras.layers.LayerNormalization()(x + hidden)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(CLASSES, activation="softmax")(x))


def _lstm() -> Any:
    return keras.Sequential(
        [
            keras.Input((TOKENS,), dtype="int32"),
            keras.layers.Embedding(WORDS, 64),
            keras.layers.LSTM(64, dropout=0.1),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def _table() -> Any:
    dense = [keras.layers.Dense(128, activation="relu") for _ in range(3)]
    classes = keras.layers.Dense(CLASSES, activation="softmax")
    return keras.Sequential([keras.Input((COLUMNS,)), *dense, classes])


def _texts(count: int) -> Arrays:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, WORDS, (count, TOKENS), dtype="int32")
    return tokens, rng.integers(0, CLASSES, count)


def _table_rows(count: int) -> Arrays:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, COLUMNS)).astype("float32"), rng.integers(0, CLASSES, count)


def keras_turn(
    network: Network,
    *,
    is_stock: bool,
    replicas: int,
    batch: int,
    steps: int,
    task: str = "fit",
    precision: str = "float32",
) -> tuple[Callable[[], float], dict[str, Any]]:
    """Return a function that runs an epoch and returns its seconds, and what is in an epoch."""
    keras.config.set_dtype_policy(precision)
    scope: Any
    if is_stock:
        scope = contextlib.nullcontext() if replicas == 1 else _stock_strategy(replicas).scope()
    else:
        strategy = kdist.MirroredStrategy(replicas=replicas)
        scope = strategy.scope()
    per_execution: int | str = 1
    if network.many_steps:
        per_execution = steps if is_stock else "auto"
    with scope:
        model = network.make() if is_stock else strategy.build(network.make)
        for layer in model.layers if is_stock and replicas > 1 else ():
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.synchronized = True
        model.compile(
            network.optimizer(),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=per_execution,
        )
        x, y = network.data(batch * steps)
        data = _cached_batches(x, y, batch)
    epoch = EpochTimer()

    def fit() -> float:
        model.fit(data, callbacks=[epoch], verbose=0, shuffle=False)
        return epoch.seconds

    turns = {
        "fit": fit,
        "evaluate": timed(lambda: model.evaluate(data, verbose=0)),
        "predict": timed(lambda: model.predict(data, verbose=0)),
    }
    flops = training_flops(model) if task == "fit" else float("nan")
    return turns[task], {"samples": len(x), "operations": len(x) * flops}


def matrix_product() -> tuple[Callable[[], float], dict[str, Any]]:
    """Return the same of float32 products of square matrices, which networks cannot exceed."""
    side, count = (8192, 8) if tf.config.list_physical_devices("GPU") else (2048, 4)
    a = tf.random.stateless_uniform((side, side), (0, 0)) / side

    @tf.function(autograph=False)
    def products() -> Any:
        b = a
        for _ in range(count):
            b = tf.matmul(a, b)
        return tf.reduce_sum(b)

    return timed(lambda: products().numpy()), {"operations": count * 2.0 * side**3}


def _stock_strategy(replicas: int) -> Any:
    """Make a `tf.distribute.MirroredStrategy`, of GPUs or of the CPU's logical devices."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, parts)
    return tf.distribute.MirroredStrategy(
        [f"{'gpu' if gpus else 'cpu'}:{index}" for index in range(replicas)],
        # TensorFlow's collectives do not work on logical CPUs.
        None if gpus else tf.distribute.ReductionToOneDevice(),
    )


def _cached_batches(x: Any, y: Any, batch: int) -> Any:
    """Cache the batches: the input pipeline has a benchmark of its own."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    return data.cache().prefetch(tf.data.AUTOTUNE).with_options(options)
