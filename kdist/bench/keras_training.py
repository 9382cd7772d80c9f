"""Training steps of `model.fit`, with stock Keras and with kdist."""

import contextlib
import math
import time
from typing import Any

import keras

from ..models import WideResNet
from .workload import CLASSES, IMAGE_SHAPE, Workload, random_images


class EpochTimer(keras.callbacks.Callback):
    """Measures the seconds of an epoch, without the beginning and the end of `fit`."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Start the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Read it."""
        self.seconds = time.perf_counter() - self.start


def stock(
    *, depth: int, width: int, batch: int, steps: int, replicas: int = 1, **options: Any
) -> Workload:
    """Train with stock Keras; with several replicas, batch norm is synchronized."""
    if replicas == 1:
        return _training(contextlib.nullcontext(), depth, width, batch, steps, **options)

    def synchronized(**names: Any) -> Any:
        return keras.layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, synchronized=True, **names
        )

    scope = stock_strategy(replicas).scope()
    return _training(scope, depth, width, batch, steps, batch_norm=synchronized, **options)


def stock_strategy(replicas: int) -> Any:
    """Make a `tf.distribute.MirroredStrategy`, of GPUs or of the CPU's logical devices."""
    import tensorflow as tf

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


def distributed(
    *,
    depth: int,
    width: int,
    batch: int,
    steps: int,
    replicas: int = 1,
    batch_norm: bool = True,
    precision: str = "float32",
) -> Workload:
    """Train the same network with `kdist.MirroredStrategy`."""
    import kdist

    keras.config.set_dtype_policy(precision)
    strategy = kdist.MirroredStrategy(replicas=replicas)
    options = {} if batch_norm else {"batch_norm": _no_batch_norm}
    return _training(strategy.scope(), depth, width, batch, steps, build=strategy.build, **options)


def dense(*, batch: int, steps: int, steps_per_execution: Any = 1) -> Workload:
    """Train a model that is so small that overhead dominates."""
    import kdist

    def model() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ]
        )

    options = {"steps_per_execution": steps_per_execution}
    images, labels = random_images(batch * steps)
    images = images.reshape((len(images), -1))[:, :64]
    if steps_per_execution != "auto":
        return _fitting(model(), images, labels, batch, **options)
    strategy = kdist.MirroredStrategy(replicas=1)
    with strategy.scope():
        return _fitting(strategy.build(model), images, labels, batch, **options)


def _flops(model: keras.Model) -> float | None:
    if keras.backend.backend() != "tensorflow":
        return None
    from ..performance.flops import training_flops

    return training_flops(model)


def _no_batch_norm(*, name: str, axis: int) -> Any:  # noqa: ARG001 - as a batch norm is called
    return keras.layers.Identity(name=name)


def _training(
    scope: Any, depth: int, width: int, batch: int, steps: int, *, build: Any = None, **options: Any
) -> Workload:
    def network() -> Any:
        return WideResNet(depth, width, input_shape=IMAGE_SHAPE, classes=CLASSES, **options)

    with scope:
        model = build(network) if build else network()
        workload = _fitting(model, *random_images(batch * steps), batch)
    weights = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    norms = sum(isinstance(x, keras.layers.BatchNormalization) for x in model.layers)
    workload.facts.update(
        steps=steps,
        gradient_bytes=4 * weights,
        batch_norms=norms,
        flops_per_image=_flops(model),
    )
    return workload


def _fitting(model: keras.Model, images: Any, labels: Any, batch: int, **options: Any) -> Workload:
    """Return an epoch of `fit` as a workload; call this in the strategy's scope."""
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **options,
    )
    epoch = EpochTimer()
    data = cached_batches(images, labels, batch)

    def turn() -> float:
        model.fit(data, callbacks=[epoch], verbose=0, shuffle=False)
        return epoch.seconds

    return Workload(work=turn, facts={"images": len(images), "batch": batch})


def cached_batches(x: Any, y: Any, batch: int) -> Any:
    """Make a dataset whose batches are cached: the input pipeline has a separate benchmark."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    return data.cache().prefetch(tf.data.AUTOTUNE).with_options(options)
