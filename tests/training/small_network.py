"""Stands in for the networks of `kdist train`, where what is tested is the run."""

import keras
from kdist.optimizers.optimizer_names import make_optimizer
from kdist.training import model as training_model
from kdist.training.model import make_run_schedule


def small_model(config, data, strategy, plan):
    """Dropout, batch norm, momentum and averages, in a tenth of the WideResNet's time."""
    layers = [keras.Input(data.image_shape), keras.layers.Flatten(), keras.layers.Dense(8)]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
    layers += [keras.layers.Dense(10, activation="softmax")]
    model = strategy.build(lambda: keras.Sequential(layers))
    rate = make_run_schedule(config, plan, data)
    options = {name: getattr(config, name) for name in ("momentum", "ema_momentum")}
    with strategy.scope():
        optimizer = make_optimizer(config.optimizer, rate, weight_decay=config.wd, **options)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def stand_in():
    """Have all runs of this process train it."""
    training_model.make_model = small_model


STAND_IN = f"""
import kdist, sys
kdist.prepare_tensorflow()
sys.path.insert(0, {__file__.rpartition("/")[0]!r})
from small_network import stand_in
stand_in()
"""
"""What a program of another process begins with for that."""
