"""Epochs of `fit`, `evaluate` and `predict` of a network, with stock Keras and with kdist."""

import contextlib
from typing import Any, Literal

import keras

from .keras_training import EpochTimer, cached_batches, stock_strategy
from .networks import NETWORKS, Network
from .workload import Workload, timed

Task = Literal["fit", "evaluate", "predict"]


def stock_network(
    *, network: str, batch: int, steps: int, replicas: int = 1, **options: Any
) -> Workload:
    """Run a network with stock Keras; on several replicas, batch norm is synchronized."""
    chosen = NETWORKS[network]
    scope = contextlib.nullcontext() if replicas == 1 else stock_strategy(replicas).scope()
    with scope:
        model = chosen.make()
        if replicas > 1:
            for layer in model.layers:
                if isinstance(layer, keras.layers.BatchNormalization):
                    layer.synchronized = True
        return _workload(chosen, model, batch, steps, **options)


def kdist_network(
    *, network: str, batch: int, steps: int, replicas: int = 1, **options: Any
) -> Workload:
    """Run the same network with `kdist.MirroredStrategy`."""
    import kdist

    chosen = NETWORKS[network]
    strategy = kdist.MirroredStrategy(replicas=replicas)
    with strategy.scope():
        return _workload(chosen, strategy.build(chosen.make), batch, steps, **options)


def _workload(
    network: Network,
    model: Any,
    batch: int,
    steps: int,
    *,
    task: Task = "fit",
    steps_per_execution: int | str = 1,
) -> Workload:
    """Return an epoch of the task; call this in the strategy's scope."""
    model.compile(
        network.optimizer(),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    x, y = network.data(batch * steps)
    data, epoch = cached_batches(x, y, batch), EpochTimer()

    def fit() -> float:
        model.fit(data, callbacks=[epoch], verbose=0, shuffle=False)
        return epoch.seconds

    turns = {
        "fit": fit,
        "evaluate": timed(lambda: model.evaluate(data, verbose=0)),
        "predict": timed(lambda: model.predict(data, verbose=0)),
    }
    return Workload(work=turns[task], facts={"samples": len(x), "batch": batch})
