"""Losses by every reduction, what layers add to them, weights, masks and metrics."""

import dataclasses

import keras
import numpy as np
import samples
import small_models as models
from harness import Case
from keras import losses, optimizers, regularizers
from variants import HEADS, ONE_LEFT, in_arrays, optimized, plain, ramp, two_heads, uneven, unscored


def squared_error(y, p):
    target = keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(y, (-1,)), "int32"), 3)
    return keras.ops.sum(keras.ops.square(target - p), axis=-1)


def ratio_of_sums(y, p):
    return keras.ops.sum(squared_error(y, p)) / keras.ops.sum(keras.ops.square(p))


def mean_squared_error(y, p):
    return keras.ops.mean(squared_error(y, p))


def scalar_crossentropy(y, p):
    return keras.ops.mean(losses.sparse_categorical_crossentropy(y, p))


def of_all_pairs(y, p):
    """A contrastive loss, InfoNCE: the other samples of the batch are the negatives."""
    own = keras.ops.arange(keras.ops.shape(p)[0])
    logits = keras.ops.matmul(p, keras.ops.transpose(p))
    return losses.sparse_categorical_crossentropy(own, logits, from_logits=True)


def finds_itself(y, p):
    """A metric with a value for each sample that depends on all."""
    nearest = keras.ops.argmax(keras.ops.matmul(p, keras.ops.transpose(p)), axis=-1)
    own = keras.ops.arange(keras.ops.shape(p)[0], dtype=nearest.dtype)
    return keras.ops.cast(nearest == own, p.dtype)


def saturated():
    """A softmax whose probabilities are 0 and 1 in float64, though its logits are known."""
    inputs = keras.Input((6,))
    steep = keras.initializers.RandomNormal(stddev=200.0, seed=1)
    outputs = keras.layers.Dense(3, activation="softmax", kernel_initializer=steep)(inputs)
    return keras.Model(inputs, outputs)


def _reduced(reduction):
    return lambda: {"loss": losses.SparseCategoricalCrossentropy(reduction=reduction)}


gru = Case(model=lambda: models.masked_recurrent(keras.layers.GRU), data=samples.series)
tagger = Case(
    model=lambda: models.embedding(tagger=True),
    data=samples.tags,
    optimizer=lambda: optimizers.Adam(0.01),
)

CASES = {
    # Regularizers, constraints, losses that layers add.
    "l2": unscored(Case(model=lambda: models.mlp(kernel_regularizer=regularizers.L2(0.1)))),
    "l2_uneven": uneven(Case(model=lambda: models.mlp(kernel_regularizer=regularizers.L2(0.1)))),
    "activity_regularizer_uneven": uneven(
        Case(model=lambda: models.mlp(activity_regularizer=regularizers.L2(0.05)))
    ),
    # Layers are shared by the replicas, and a synchronized one behind lets the next replica in.
    "activity_regularizer_bn_uneven": uneven(
        Case(model=lambda: models.mlp(models.synchronized, activity_regularizer="l2"), scored=False)
    ),
    "constraint_uneven": uneven(
        Case(model=lambda: models.mlp(kernel_constraint=keras.constraints.UnitNorm()), scored=False)
    ),
    "added_mean_uneven": uneven(Case(model=lambda: models.added_loss(per_sample=False))),
    "added_per_sample_uneven": uneven(
        optimized(lambda: optimizers.SGD(0.01), model=lambda: models.added_loss(per_sample=True))
    ),
    "added_per_sample_in_known_sizes": Case(
        model=lambda: models.added_loss(per_sample=True),
        feed=samples.dropping_dataset,
        scored=False,
    ),
    "added_per_sample_eagerly": uneven(
        Case(model=lambda: models.added_loss(per_sample=True)),
        compile=lambda: {"run_eagerly": True},
        optimizer=lambda: optimizers.SGD(0.01),
    ),
    "only_added_loss": uneven(
        Case(
            model=models.autoencoder,
            data=samples.features,
            compile=lambda: {"loss": None, "metrics": None},
            optimizer=lambda: optimizers.Adam(0.01),
        ),
        samples=ONE_LEFT,
    ),
    # Weights of samples.
    "sample_weight": Case(weights=ramp, scored=False),
    "sample_weight_uneven": uneven(in_arrays, weights=ramp),
    "sample_weight_zero_on_one_replica": uneven(
        Case(
            weights=lambda samples: np.arange(samples) % 8 < 4,
            compile=lambda: {
                "loss": losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
            },
        )
    ),
    "class_weight_uneven": uneven(
        in_arrays, fit=lambda: {"class_weight": {0: 1.0, 1: 5.0, 2: 0.3}}
    ),
    # Losses and metrics.
    "custom_loss_uneven": uneven(plain, compile=lambda: {"loss": squared_error}),
    "custom_mean_loss_uneven": uneven(plain, compile=lambda: {"loss": mean_squared_error}),
    "custom_mean_loss_of_logits_uneven": uneven(
        Case(model=saturated), compile=lambda: {"loss": scalar_crossentropy}
    ),
    "loss_of_all_pairs_uneven": uneven(plain, compile=lambda: {"loss": of_all_pairs}),
    "metric_of_all_pairs_uneven": uneven(plain, compile=lambda: {"metrics": [finds_itself]}),
    "custom_objective_uneven": uneven(
        Case(model=lambda: models.custom_model(models.CustomObjective))
    ),
    "custom_metric_uneven": uneven(Case(model=lambda: models.custom_model(models.CustomMetric))),
    "custom_logs_uneven": uneven(Case(model=lambda: models.custom_model(models.CustomLogs))),
    "two_heads_uneven": two_heads,
    "two_heads_eagerly": dataclasses.replace(
        two_heads, compile=lambda: {**two_heads.compile(), "run_eagerly": True}
    ),
    "two_heads_weighted": dataclasses.replace(
        two_heads, weights=lambda samples: {"kind": ramp(samples), "size": ramp(samples)[::-1]}
    ),
    "listed_inputs_and_losses": dataclasses.replace(
        two_heads,
        model=models.two_ways,
        data=samples.listed,
        feed=samples.arrays,
        compile=lambda: {"loss": list(HEADS.values()), "loss_weights": [1.0, 0.2], "metrics": None},
    ),
    "named_inputs_and_losses": dataclasses.replace(
        two_heads, model=models.two_ways, data=samples.named, samples=ONE_LEFT, feed=samples.arrays
    ),
    "metrics_uneven": uneven(
        plain,
        data=samples.column_classes,
        compile=lambda: {
            "metrics": [
                "accuracy",
                keras.metrics.SparseCategoricalCrossentropy(name="xent"),
                keras.metrics.MeanIoU(3, sparse_y_pred=False, name="iou"),
            ]
        },
    ),
    "metrics_of_one_hot_uneven": uneven(
        plain,
        data=samples.one_hot,
        samples=ONE_LEFT,
        compile=lambda: {
            "loss": "categorical_crossentropy",
            "metrics": [
                keras.metrics.AUC(multi_label=True, num_labels=3, name="auc"),
                keras.metrics.F1Score(name="f1"),
                keras.metrics.R2Score(name="r2"),
                keras.metrics.Precision(name="precision"),
                keras.metrics.RootMeanSquaredError(name="rmse"),
            ],
        },
    ),
    "weighted_metrics_uneven": uneven(
        Case(weights=ramp),
        data=samples.one_hot,
        compile=lambda: {
            "loss": "categorical_crossentropy",
            "weighted_metrics": ["accuracy", keras.metrics.AUC(name="auc")],
        },
    ),
    # No means over samples: a ratio of sums over the batch, pairs of samples, any function of it.
    "dice_uneven": uneven(
        Case(model=models.several_labels, data=samples.one_hot),
        compile=lambda: {"loss": "dice", "metrics": None},
    ),
    "circle_uneven": uneven(
        optimized(lambda: optimizers.SGD(1e-3)), compile=lambda: {"loss": losses.Circle()}
    ),
    "custom_ratio_loss_uneven": uneven(
        Case(weights=ramp), compile=lambda: {"loss": ratio_of_sums}, samples=ONE_LEFT
    ),
    "losses_as_metrics_uneven": uneven(
        plain,
        data=samples.one_hot,
        compile=lambda: {
            "loss": "categorical_crossentropy",
            "metrics": [losses.MeanSquaredError(), losses.CategoricalCrossentropy(name="xent")],
        },
    ),
    "added_per_step_in_known_sizes": Case(
        model=lambda: models.added_loss(per_sample=True, parts=2), feed=samples.dropping_dataset
    ),
    # Masks and sparse gradients.
    "masked_gru_uneven": uneven(gru),
    "masked_lstm_clipnorm": dataclasses.replace(
        gru,
        model=lambda: models.masked_recurrent(keras.layers.LSTM),
        optimizer=lambda: optimizers.SGD(0.1, clipnorm=0.05),
        scored=False,
    ),
    "masked_tagger_uneven": uneven(tagger),
    "masked_tagger_weighted_mean": uneven(
        tagger,
        weights=lambda samples: ramp(5 * samples).reshape(samples, 5),
        compile=_reduced("mean_with_sample_weight"),
    ),
    "masked_tagger_sum": uneven(
        tagger, compile=_reduced("sum"), optimizer=lambda: optimizers.SGD(0.001), scored=False
    ),
    "embedding_global_clipnorm_uneven": uneven(
        Case(
            model=models.bag_of_tokens,
            data=samples.tokens,
            optimizer=lambda: optimizers.Adam(0.01, global_clipnorm=0.1),
            scored=False,
        ),
        samples=ONE_LEFT,
    ),
    "embedding_of_many_words_uneven": uneven(
        Case(
            model=lambda: models.bag_of_tokens(samples.WORDS),
            data=samples.words,
            optimizer=lambda: optimizers.Adam(0.01),
            scored=False,
        )
    ),
    "embedding_accumulation_uneven": uneven(
        Case(
            model=models.bag_of_tokens,
            data=samples.tokens,
            optimizer=lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2),
            scored=False,
        )
    ),
}
for _reduction in ("sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none"):
    for _suffix, _weights in {"": None, "_weighted": ramp}.items():
        CASES[f"loss_{_reduction}{_suffix}"] = uneven(
            optimized(lambda: optimizers.SGD(0.01), weights=_weights, scored=bool(_weights)),
            compile=_reduced(_reduction),
        )
