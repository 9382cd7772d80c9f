"""Every loss, metric, optimizer, regularizer, constraint and activation of Keras."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from compared import (
    BATCH,
    RATE,
    ROUNDED,
    TOLERANCE,
    Expressions,
    differences,
    failures,
    strategies,
    value_of,
)
from keras import activations, constraints, losses, metrics, optimizers, regularizers
from op_samples import INPUTS as ARRAYS
from op_samples import ROWS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("float64", "without_graph_optimizer_in_module", "small"),
]


def _softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


# Names of inputs in the expressions: each has the rows of the batch as its first axis.
INPUTS = {
    "x": ARRAYS["x"],
    "y": ARRAYS["y"],
    "seq": ARRAYS["seq"],
    "one": 1 / (1 + np.exp(-ARRAYS["x"])),
    "two": _softmax(ARRAYS["y"]),
    "bits": (ARRAYS["y"] > 0).astype("float64"),
    "hot": np.eye(8)[ARRAYS["i"][:, 0]],
    "ids": ARRAYS["i"][:, 0],
    "texts": ARRAYS["i"][:, :3] + 1,
    "two32": _softmax(ARRAYS["y"]).astype("float32"),
    "weights": np.linspace(0, 2, ROWS),
}
# Inputs of losses and metrics, other than `bits, one`, by the beginnings of their names; the
# longest counts.
PAIRS = {
    "bits, one": "FalseNegatives FalsePositives",
    "bits[:, 0], one[:, 0]": "BinaryIoU",
    "hot, bits": "Accuracy",
    "hot, one": "F",
    "hot, two": "Categorical OneHot categorical",
    "hot, two32": "TopK top",
    "ids, ids[::-1]": "IoU MeanIoU",
    "ids, two": "CategoricalGeneralized Sparse categorical_generalized sparse",
    "ids, two32": "SparseTop sparse_top",
    "ids, y": "Circle circle",
    "texts, seq": "CTC ctc",
    "y, x": "Cosine MeanAbsolutePercentage mean_absolute_percentage",
}
# Arguments of classes that need some.
ARGUMENTS = {
    "BinaryIoU": "target_class_ids=[1]",
    "IoU": "4, [0, 2]",
    "MeanIoU": "4",
    "MeanMetricWrapper": "lambda y, p: keras.ops.mean(y * p, -1)",
    "MultiOptimizer": "[(SGD(0.1), []), (Adam(0.1), [])]",
    "OneHotIoU": "8, [0, 2]",
    "OneHotMeanIoU": "8",
    "PrecisionAtRecall": "0.5",
    "RecallAtPrecision": "0.5",
    "SensitivityAtSpecificity": "0.5",
    "SparseTopKCategoricalAccuracy": "2",
    "SpecificityAtSensitivity": "0.5",
    "TopKCategoricalAccuracy": "2",
}
MORE = {"categorical_generalized_cross_entropy": ", q=0.7", "threshold": ", 0.3, 1.0"}
# Takes a matrix of known size, and in float64 none.
NOT_OF_BATCHES = "OrthogonalRegularizer"
# Their inputs are not those of a classifier.
NOT_IN_FIT = ("BinaryIoU", "CTC", "IoU", "Mean", "MeanIoU", "Sum")
WITHOUT_WEIGHTS = ("R2Score", "PearsonCorrelation", "ConcordanceCorrelation")
EXCEPTIONS = {
    "Constraint": "is abstract",
    "LossScaleOptimizer": "has a step of its own, and a case in tests/parity",
    "Loss": "is abstract",
    "Metric": "is abstract",
    "MultiOptimizer": "is made for a model's layers, and has a case in tests/parity",
    "Optimizer": "is abstract",
    "OptimizerMap": "computes nothing",
    "Regularizer": "is abstract",
    "deserialize": "makes objects",
    "get": "makes objects",
    "serialize": "describes objects",
}


def listed(module, of_classes):
    """Public classes or functions of a module, each by one of its names."""
    names = [n for n, one in vars(module).items() if n[0] != "_" and callable(one)]
    found = {id(getattr(module, name)): name for name in sorted(names, reverse=True)}
    return sorted(
        name
        for name in found.values()
        if name not in EXCEPTIONS and inspect.isclass(getattr(module, name)) == of_classes
    )


def pair_of(name):
    begins = [
        (len(begin), pair)
        for pair, some in PAIRS.items()
        for begin in some.split()
        if name.startswith(begin)
    ]
    return max(begins, default=(0, "bits, one"))[1]


def made(name):
    return f"{name}({ARGUMENTS.get(name, '')})"


def tolerance(name):
    return ROUNDED if "ctc" in name.lower() or NOT_OF_BATCHES in name else TOLERANCE


def check(make_step, expressions, tolerance=tolerance, and_divided=False):
    found = failures(make_step, expressions, INPUTS, tolerance, and_divided=and_divided)
    assert not found, "\n" + "\n".join(found)


def test_functions():
    """Functions, and objects without state, of batches."""
    found = [f"losses.{n}({pair_of(n)}{MORE.get(n, '')})" for n in listed(losses, False)]
    for name in listed(losses, True):
        loss = f"losses.{made(name)}"
        found += [f"{loss}({pair_of(name)})", f"{loss}({pair_of(name)}, sample_weight=weights)"]
    found += [f"metrics.{n}({pair_of(n)})" for n in listed(metrics, False)]
    for name in listed(activations, False):
        found.append(f"activations.{name}(x{MORE.get(name, '')})")
    found += [
        f"regularizers.{n}(0.1)(x)" for n in listed(regularizers, True) if n != NOT_OF_BATCHES
    ]
    found += [f"constraints.{n}()(x)" for n in listed(constraints, True)]
    names = {"losses": losses, "metrics": metrics, "activations": activations}
    names |= {"regularizers": regularizers, "constraints": constraints}
    check(lambda some: Expressions(some, names), found)


class Metrics:
    """A step that updates metrics."""

    def __init__(self, names):
        self.errors = {}
        self.metrics = {name: eval(made(name), vars(metrics) | {"keras": keras}) for name in names}

    def __call__(self, inputs):
        found = {}
        for name, metric in self.metrics.items():
            pair = eval(f"[{pair_of(name)}]", dict(inputs))
            if name in ("Mean", "Sum"):
                pair = pair[1:]
            weights = inputs["ids" if "IoU" in name else "weights"]
            metric.update_state(*pair, sample_weight=None if name in WITHOUT_WEIGHTS else weights)
            found[name] = keras.tree.flatten(metric.result())
        return found

    def state(self):
        return {
            f"{one.path} of {name}": value_of(one)
            for name, metric in self.metrics.items()
            for one in metric.variables
        }


def test_metrics():
    check(Metrics, listed(metrics, True), lambda name: ROUNDED)


class Optimizers:
    """A step that trains a layer for each optimizer, regularizer and constraint."""

    def __init__(self, names):
        self.errors = {}
        self.parts = {}
        for name in names:
            options = {}
            kind, _, part = name.partition(".")
            if kind == "regularizers":
                regularizer = getattr(regularizers, part)(0.01)
                options = {"kernel_regularizer": regularizer}
                if part == NOT_OF_BATCHES:
                    options["dtype"] = "float32"
                else:
                    options["activity_regularizer"] = regularizer
            if kind == "constraints":
                options = {"kernel_constraint": getattr(constraints, part)()}
            layer = keras.layers.Dense(4, activation="tanh", **options)
            layer.build((None, 8))
            optimizer = optimizers.SGD(RATE)
            if kind == "optimizers":
                optimizer = getattr(optimizers, part)(clipnorm=0.5, weight_decay=0.01)
            optimizer.build(layer.trainable_weights)
            self.parts[name] = layer, optimizer

    def __call__(self, inputs):
        found = {}
        for name, (layer, optimizer) in self.parts.items():
            weights = [one.value for one in layer.trainable_weights]
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(
                    losses.mean_squared_error(inputs["one"][:, :4], layer(inputs["x"]))
                )
                loss = tf.add_n([loss, *layer.losses])
            optimizer.apply(tape.gradient(loss, weights), layer.trainable_weights)
            found[name] = [loss]
        return found

    def state(self):
        return {
            f"{one.path} of {name}": value_of(one)
            for name, (layer, optimizer) in self.parts.items()
            for one in [*layer.weights, *optimizer.variables]
        }


def test_optimizers():
    found = [f"optimizers.{name}" for name in listed(optimizers, True)]
    found += [f"regularizers.{name}" for name in listed(regularizers, True)]
    found += [f"constraints.{name}" for name in listed(constraints, True)]
    check(Optimizers, found, and_divided=True)


def test_losses_and_metrics_in_fit():
    one, three = map(trained, strategies())
    found = differences(one, three, lambda name: ROUNDED)
    assert not found, "\n" + "\n".join(found)


def trained(strategy):
    """Fit a model with an output for each loss and metric."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    names = listed(losses, True) + listed(metrics, True)
    names = [name for name in names if name not in NOT_IN_FIT]
    options = {"loss": {}, "weighted_metrics": {}}
    outputs, targets = {}, {}
    with strategy.scope():
        inputs = keras.Input((8,))
        for number, name in enumerate(names):
            key = f"{number}_{name}"
            dtype = "float32" if "TopK" in name else "float64"
            outputs[key] = keras.layers.Dense(8, "softmax", dtype=dtype, name=key)(inputs)
            is_loss = number < names.index("AUC")
            part = eval(made(name), vars(losses if is_loss else metrics) | {"keras": keras})
            has_ids = pair_of(name).startswith("ids")
            targets[key] = INPUTS["ids" if has_ids else "hot"]
            plain = "sparse_categorical_crossentropy" if has_ids else "mse"
            options["loss"][key] = part if is_loss else plain
            options["weighted_metrics"][key] = [] if is_loss else [part]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", **options)
    options = {"sample_weight": ARRAYS["i"][:, 1], "batch_size": BATCH, "verbose": 0}
    fitted = model.fit(INPUTS["x"], targets, shuffle=False, **options)
    state = {one.path: value_of(one) for one in model.weights}
    return fitted.history | state
