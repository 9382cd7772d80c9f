"""A case of `backends.py` on two devices and on one: prints the weights, or an error, as JSON.

`python backend_cases.py BACKEND CASE`; the interpreter need not have kdist's dependencies.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

BATCH, EPOCHS, RATE, CLASSES = 8, 2, 0.1, 3
# For each case, the number of samples, in batches of 8, and the difference from the first case.
CASES: dict[str, tuple[int, str]] = {
    "even batches": (32, ""),
    "uneven last batch": (29, ""),
    "fewer samples than replicas": (25, ""),
    "clipnorm": (32, "clipnorm"),
    "dropout": (32, "dropout"),
    "plain batch norm": (32, "batch norm"),
    "synchronized batch norm": (32, "synchronized"),
    "synchronized batch norm, uneven": (29, "synchronized"),
    "masked batch norm": (32, "masked"),
    "gradient accumulation": (32, "accumulation"),
    "own train_step, uneven": (29, "own step"),
}


def random_samples(count: int, kind: str) -> tuple[Any, Any]:
    """Return samples and their classes; masked sequences end in zeros."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(count, 6)) * 3 + 2, rng.integers(0, CLASSES, count)
    if kind == "masked":
        x = x.reshape(count, 3, 2)
        x[np.arange(3) >= rng.integers(1, 4, count)[:, None]] = 0
    return x, y


# Keras on TensorFlow and JAX


def train_keras(backend: str, case: str, devices: int) -> list[Any]:
    """Train with Keras, and return the weights."""
    os.environ["KERAS_BACKEND"] = "jax" if backend == "jax" else "tensorflow"
    if backend == "jax":
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import keras

    keras.backend.clear_session()  # before the distribution, which is a part of the session
    strategy = start_jax(devices) if backend == "jax" else start_tensorflow(backend, devices)
    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)
    samples, kind = CASES[case]

    def make() -> Any:
        model = make_model(kind)
        options: dict[str, Any] = {"clipnorm": 0.1} if kind == "clipnorm" else {}
        options |= {"gradient_accumulation_steps": 2} if kind == "accumulation" else {}
        optimizer = keras.optimizers.SGD(RATE, **options)
        model.compile(optimizer, "sparse_categorical_crossentropy")
        return model

    if strategy is None:
        model = make()
    elif backend == "kdist":
        model = strategy.build(make)
    else:
        with strategy.scope():
            model = make()
    x, y = random_samples(samples, kind)
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return list(model.get_weights())


def start_tensorflow(backend: str, devices: int) -> Any:
    """Return the strategy on logical CPUs; `None` for a single device, which is stock Keras."""
    import tensorflow as tf

    if devices == 1:
        return None
    parts = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    names = [f"/cpu:{index}" for index in range(devices)]
    if backend == "stock":
        return tf.distribute.MirroredStrategy(names)
    import kdist

    return kdist.MirroredStrategy(names)


def start_jax(devices: int) -> None:
    """Divide batches over CPU devices."""
    import jax
    import keras

    jax.config.update("jax_enable_x64", True)
    cpus = keras.distribution.list_devices("cpu")[:devices]
    if len(cpus) < devices:
        raise RuntimeError(f"JAX has {len(cpus)} CPU devices, expected {devices}")
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=cpus))


def make_model(kind: str) -> Any:
    """Return two dense layers with a batch norm or dropout between them."""
    import keras

    layers = keras.layers
    inputs = keras.Input((3, 2) if kind == "masked" else (6,))
    x = layers.Masking()(inputs) if kind == "masked" else inputs
    x = layers.Dense(8, activation="relu")(x)
    if kind in ("batch norm", "synchronized", "masked"):
        # Keras refuses synchronized=True on JAX, whose batch norm has the whole batch anyway.
        synchronized = kind != "batch norm" and keras.backend.backend() == "tensorflow"
        x = layers.BatchNormalization(synchronized=synchronized)(x)
    if kind == "dropout":
        x = layers.Dropout(0.5, seed=1)(x)
    if kind == "masked":
        x = layers.GlobalAveragePooling1D()(x)
    outputs = layers.Dense(CLASSES, activation="softmax")(x)
    if kind != "own step":
        return keras.Model(inputs, outputs)
    return (define_jax_step() if keras.backend.backend() == "jax" else define_train_step())(
        inputs, outputs
    )


def define_train_step() -> type:
    """Return a model with the train_step of Keras's guide for TensorFlow."""
    import keras
    import tensorflow as tf

    class OwnStep(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                errors = keras.losses.sparse_categorical_crossentropy(y, self(x, training=True))
                loss = keras.ops.mean(errors)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    return OwnStep


def define_jax_step() -> type:
    """Return a model with the train_step of Keras's guide for JAX."""
    import jax
    import keras

    class OwnStep(keras.Model):
        def loss_of(self, trainable: Any, others: Any, x: Any, y: Any) -> Any:
            outputs, others = self.stateless_call(trainable, others, x, training=True)
            errors = keras.losses.sparse_categorical_crossentropy(y, outputs)
            return keras.ops.mean(errors), others

        def train_step(self, state: Any, data: Any) -> Any:
            trainable, others, optimizer, metrics = state
            x, y = data
            compute = jax.value_and_grad(self.loss_of, has_aux=True)
            (loss, others), gradients = compute(trainable, others, x, y)
            trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
            return {"loss": loss}, (trainable, others, optimizer, metrics)

    return OwnStep


# PyTorch


def train_torch(case: str, devices: int) -> list[Any]:
    """Train with PyTorch: on one device, or by DistributedDataParallel in processes."""
    import tempfile

    import torch.multiprocessing

    if devices == 1:
        return train_rank(0, case, 1, "", "")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (case, devices, f"file://{folder}/meet", f"{folder}/weights.npz")
        # Forked processes need not import PyTorch again.
        options = {"nprocs": devices, "start_method": "fork"}
        torch.multiprocessing.start_processes(train_rank, arguments, **options)
        with np.load(f"{folder}/weights.npz") as arrays:
            return list(arrays.values())


def train_rank(rank: int, case: str, devices: int, meet: str, file: str) -> list[Any]:
    """Train in a process, as PyTorch's tutorial of DistributedDataParallel does."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    samples, kind = CASES[case]
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    between: list[nn.Module] = [nn.BatchNorm1d(8)] if kind in ("batch norm", "synchronized") else []
    between += [nn.Dropout(0.5)] if kind == "dropout" else []
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *between, nn.Linear(8, CLASSES))
    model: Any = network
    data = TensorDataset(*map(torch.from_numpy, random_samples(samples, kind)))
    sampler = None
    if devices > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=meet, rank=rank, world_size=devices
        )
        if kind == "synchronized":
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        model = nn.parallel.DistributedDataParallel(network)
        sampler = DistributedSampler(data, shuffle=False)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    pieces = 2 if kind == "accumulation" else 1
    for _ in range(EPOCHS):
        for step, (x, y) in enumerate(DataLoader(data, BATCH // devices, sampler=sampler), 1):
            (nn.functional.cross_entropy(model(x), y) / pieces).backward()
            if kind == "clipnorm":
                for parameter in model.parameters():
                    nn.utils.clip_grad_norm_(parameter, 0.1)
            if step % pieces == 0:
                optimizer.step()
                optimizer.zero_grad()
    weights = [value.numpy() for value in network.state_dict().values()]
    if rank == 0 and file:
        np.savez(file, *weights)
    if devices > 1:
        torch.distributed.destroy_process_group()
    return weights


def main(backend: str, case: str) -> None:
    """Train on two devices and on one, and print the result as JSON."""
    if backend == "torch" and CASES[case][1] == "masked":
        print(json.dumps({"missing": "no such layer"}))
        return
    try:
        found: dict[str, Any] = {}
        for devices in (2, 1):
            is_torch = backend == "torch"
            result = train_torch(case, devices) if is_torch else train_keras(backend, case, devices)
            found[f"{devices}"] = [np.asarray(weight).tolist() for weight in result]
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        # An error in a child process of PyTorch is the last line of its traceback.
        is_in_child = type(error).__name__ == "ProcessRaisedException"
        found = {"crash": lines[-1] if is_in_child else f"{type(error).__name__}: {lines[0]}"}
    print(json.dumps(found))


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # for kdist
    main(*sys.argv[1:])
