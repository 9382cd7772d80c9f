"""Every optimizer that Keras or kdist ships, and what optimizers do besides a step."""

import keras
import procedures
import samples
from kdist.optimizers import LARS, NovoGrad
from keras import optimizers
from variants import bn, optimized, plain, uneven, unscored

OPTIMIZERS = {
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "Adam": lambda: optimizers.Adam(0.01, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "Adagrad": lambda: optimizers.Adagrad(0.05),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "Adamax": lambda: optimizers.Adamax(0.01),
    "Nadam": lambda: optimizers.Nadam(0.01),
    "Ftrl": lambda: optimizers.Ftrl(0.05, l1_regularization_strength=0.01),
    "Lion": lambda: optimizers.Lion(0.01),
    "Lamb": lambda: optimizers.Lamb(0.01),
    "Muon": lambda: optimizers.Muon(0.01, exclude_layers=["classes"]),
    "Adafactor": lambda: optimizers.Adafactor(0.01),
    "LossScaleOptimizer": lambda: optimizers.LossScaleOptimizer(
        optimizers.Adam(0.01, clipnorm=0.1), dynamic_growth_steps=3
    ),
    "ScheduleFreeAdamW": lambda: optimizers.ScheduleFreeAdamW(0.01),
    "LARS": lambda: LARS(1.0, trust_coefficient=0.05, weight_decay_rate=0.1, clipnorm=0.5),
    "NovoGrad": lambda: NovoGrad(0.02, weight_decay_rate=0.1, clipnorm=0.5),
}
if hasattr(optimizers, "MultiOptimizer"):  # new in Keras 3.15
    OPTIMIZERS["MultiOptimizer"] = lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(optimizers.SGD(0.1), {"classes/.*": optimizers.Adam(0.01)})
    )


def _excluding_biases(optimizer):
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


CASES = {
    **{f"optimizer_{name}": uneven(optimized(make)) for name, make in OPTIMIZERS.items()},
    "optimizer_ScheduleFreeAdamW": uneven(
        optimized(OPTIMIZERS["ScheduleFreeAdamW"]), procedure=procedures.optimizer_built_first
    ),
    "clipnorm": optimized(lambda: optimizers.SGD(0.1, clipnorm=0.1)),
    "global_clipnorm_uneven": uneven(optimized(lambda: optimizers.SGD(0.1, global_clipnorm=0.1))),
    "clipvalue": optimized(lambda: optimizers.SGD(0.1, clipvalue=0.02)),
    "ema": optimized(lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)),
    "ema_overwrite_uneven": uneven(
        optimized(
            lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2)
        )
    ),
    "ema_swapped_for_evaluation": uneven(
        optimized(lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9)),
        fit=lambda: {"callbacks": [keras.callbacks.SwapEMAWeights()], "validation_split": 0.2},
        feed=samples.arrays,
    ),
    "accumulation": optimized(lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2)),
    "accumulation_clipnorm_bn_uneven": uneven(
        unscored(bn),
        optimizer=lambda: optimizers.Adam(0.01, gradient_accumulation_steps=3, clipnorm=0.1),
    ),
    "nonfinite_step_skipped": optimized(
        lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.1)), data=samples.overflowing
    ),
    "schedule": optimized(
        lambda: optimizers.SGD(
            optimizers.schedules.CosineDecay(0.1, 10, warmup_target=0.2, warmup_steps=3)
        )
    ),
    "learning_rate_scheduler": uneven(
        unscored(plain),
        fit=lambda: {
            "callbacks": [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.3)]
        },
    ),
    "reduce_on_plateau": uneven(
        unscored(plain),
        fit=lambda: {
            "callbacks": [
                keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=9)
            ],
            "epochs": 3,
        },
    ),
    "best_weights_restored": uneven(
        optimized(lambda: optimizers.SGD(2.0)),
        fit=lambda: {
            "callbacks": [
                keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
            ],
            "epochs": 3,
        },
    ),
    "weight_decay_excluded": uneven(
        optimized(lambda: _excluding_biases(optimizers.SGD(0.1, weight_decay=0.05)))
    ),
}

# The learning rate, or restored weights: nothing of an optimizer's state.
OF_CALLBACKS = (
    "schedule",
    "learning_rate_scheduler",
    "reduce_on_plateau",
    "best_weights_restored",
)
