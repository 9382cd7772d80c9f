"""keras-tcn, keras-mdn-layer, ncps, hgq2, scikeras: layers and wrappers of models."""

import types
from typing import Any

import keras
import numpy as np

from ..cases import ROWS, Training, register_case

STEPS, FEATURES = 12, 3


def series() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, STEPS, FEATURES))


def regression(layers: list[Any], y: np.ndarray, **options: Any) -> Training:
    model = keras.Sequential([keras.Input(series().shape[1:]), *layers])
    model.compile(**{"optimizer": keras.optimizers.Adam(0.01), "loss": "mse"} | options)
    return Training(model, series(), y)


def sums() -> np.ndarray:
    return series().sum((1, 2))[:, None]


def tcn(*, each: bool = False, **options: Any) -> Training:
    from tcn import TCN

    layer = TCN(
        4, kernel_size=2, dilations=(1, 2), return_sequences=each, dropout_rate=0.1, **options
    )
    return regression([layer, keras.layers.Dense(1)], series()[..., :1] if each else sums())


@register_case("keras-tcn", "TCN, use_batch_norm", built=True)
def tcn_batch_norm() -> Training:
    return tcn(use_batch_norm=True)


@register_case("keras-tcn", "TCN, use_layer_norm")
def tcn_layer_norm() -> Training:
    return tcn(use_layer_norm=True)


@register_case("keras-tcn", "TCN, return_sequences")
def tcn_sequences() -> Training:
    return tcn(each=True)


@register_case("keras-mdn-layer", "MDN")
def mdn() -> Training:
    import keras_mdn_layer

    flat = [keras.layers.Flatten(), keras.layers.Dense(8, "tanh"), keras_mdn_layer.MDN(2, 3)]
    loss = keras_mdn_layer.get_mixture_loss_func(2, 3)
    return regression(flat, series()[:, 0, :2], loss=loss)


@register_case("ncps", "CfC")
def cfc() -> Training:
    from ncps.keras import CfC

    layers = [CfC(5, backbone_units=8, backbone_layers=1, backbone_dropout=0.1)]
    return regression([*layers, keras.layers.Dense(1)], sums())


@register_case("ncps", "CfC, AutoNCP wiring, mixed memory")
def cfc_wired() -> Training:
    from ncps.keras import CfC
    from ncps.wirings import AutoNCP

    return regression(
        [CfC(AutoNCP(8, 2), mixed_memory=True, return_sequences=True)], series()[..., :2]
    )


@register_case("ncps", "LTC, AutoNCP wiring", dtype="float32")  # its wiring is float32
def ltc() -> Training:
    from ncps.keras import LTC
    from ncps.wirings import AutoNCP

    return regression(
        [LTC(AutoNCP(8, 1), ode_unfolds=2)], sums(), optimizer=keras.optimizers.SGD(0.01)
    )


def quantized(layers: Any, x: np.ndarray, y: np.ndarray) -> Training:
    import hgq.config
    import hgq.utils.sugar

    with (
        hgq.config.QuantizerConfigScope(default_q_type="kbi", overflow_mode="SAT_SYM"),
        hgq.config.LayerConfigScope(enable_ebops=True, beta0=1e-5),
    ):
        model = keras.Sequential([keras.Input(x.shape[1:]), *layers()])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    callbacks = [
        hgq.utils.sugar.FreeEBOPs(),
        hgq.utils.sugar.BetaScheduler(
            hgq.utils.sugar.PieceWiseSchedule([(0, 1e-5, "linear"), (2, 1e-3, "constant")])
        ),
    ]
    return Training(model, x, y, {"callbacks": callbacks})


@register_case("hgq2", "QDense, QBatchNormDense")
def q_dense() -> Training:
    from hgq.layers import QBatchNormDense, QDense

    return quantized(
        lambda: [QDense(8, activation="relu"), QBatchNormDense(8, activation="relu"), QDense(1)],
        series().reshape(ROWS, -1),
        sums(),
    )


@register_case("hgq2", "QConv2D, QMaxPooling2D")
def q_conv() -> Training:
    from hgq.layers import QConv2D, QDense, QMaxPooling2D

    return quantized(
        lambda: [
            QConv2D(4, 3, activation="relu"),
            QMaxPooling2D(2),
            keras.layers.Flatten(),
            QDense(1),
        ],
        np.random.default_rng(0).normal(size=(ROWS, 8, 8, 2)),
        sums(),
    )


class Estimator:
    """scikeras's estimator with the methods of a model, as far as they are called."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @property
    def weights(self) -> list[Any]:
        return self.estimator.model_.weights

    def fit(self, x: Any, y: Any, **options: Any) -> Any:
        self.estimator.set_params(**options).fit(x, y)
        return types.SimpleNamespace(history=self.estimator.history_)

    def evaluate(self, x: Any, y: Any, **_: Any) -> dict[str, float]:
        return {"score": self.estimator.score(x, y)}

    def predict(self, x: Any, **_: Any) -> Any:
        return getattr(self.estimator, "predict_proba", self.estimator.predict)(x)


def estimated(kind: str, y: np.ndarray, loss: str, activation: str | None) -> Training:
    import scikeras.wrappers
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()

    def network(meta: dict[str, Any]) -> Any:
        with strategy.scope():  # called by `fit`
            return keras.Sequential(
                [
                    keras.Input((meta["n_features_in_"],)),
                    keras.layers.Dense(8, "relu"),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dropout(0.2),
                    keras.layers.Dense(meta.get("n_classes_", 1), activation),
                ]
            )

    estimator = getattr(scikeras.wrappers, kind)(
        network,
        loss=loss,
        optimizer="adam",
        optimizer__learning_rate=0.01,
        metrics=["mae"],
        random_state=3,
    )
    return Training(Estimator(estimator), series().reshape(ROWS, -1), y)


@register_case("scikeras", "KerasClassifier")
def classifier() -> Training:
    y = np.arange(ROWS) % 3
    return estimated("KerasClassifier", y, "sparse_categorical_crossentropy", "softmax")


@register_case("scikeras", "KerasRegressor")
def regressor() -> Training:
    return estimated("KerasRegressor", sums()[:, 0], "mse", None)
