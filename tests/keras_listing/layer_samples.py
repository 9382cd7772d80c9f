"""Sample inputs of Keras's layers: expressions of a batch; most are in `layer_calls.txt`."""

import inspect
import re

import keras
import numpy as np
import op_samples

ROWS = op_samples.ROWS
_RNG = np.random.default_rng(4)
_WORDS = np.array(["one", "two", "three", "four", "other"])

# Names of inputs in the expressions: each has the rows of the batch as its first axis.
INPUTS = {name: op_samples.INPUTS[name] for name in ("x", "y", "i", "k", "seq", "images")} | {
    "volumes": op_samples.INPUTS["volumes"],
    "steps": _RNG.normal(size=(ROWS, 3, 4, 2)),
    "films": _RNG.normal(size=(ROWS, 3, 4, 4, 2)),
    "clips": _RNG.normal(size=(ROWS, 2, 3, 3, 3, 2)),
    "sound": _RNG.normal(size=(ROWS, 64)),
    "masked": np.where(np.arange(12)[:, None] < _RNG.integers(1, 12, size=(ROWS, 1, 1)), 1.3, 0.0)
    * _RNG.normal(size=(ROWS, 1, 4)),
    "words": _WORDS[_RNG.integers(0, 5, size=(ROWS, 3))],
    "texts": np.array([" ".join(_WORDS[_RNG.integers(0, 5, size=4)]) for _ in range(ROWS)]),
    "labels": np.eye(4)[_RNG.integers(0, 4, size=ROWS)],
}

# Arguments of classes, by what their names begin with.
ARGUMENTS = {
    "Adaptive": "2",
    "Average": "2",
    "AvgPool": "2",
    "Conv": "3, 2",
    "Depthwise": "2",
    "Max": "2",
    "Separable": "3, 2",
    "Spatial": "0.4",
}

# Layers that Keras cannot compute when its floats are of 64 bits.
FLOAT32 = ["RandAugment", "RandomRotation"]

# Layers that are no computation, or need what is no part of Keras.
EXCEPTIONS = {
    "FlaxLayer": "needs JAX",
    "Input": "computes nothing",
    "InputLayer": "computes nothing",
    "InputSpec": "is no layer",
    "JaxLayer": "needs JAX",
    "Layer": "is abstract",
    "TFSMLayer": "needs a saved model",
    "TorchModuleWrapper": "needs PyTorch",
    "Wrapper": "is abstract",
    "deserialize": "makes layers",
    "serialize": "describes layers",
}


def layers():
    """Classes and functions of `keras.layers`, each by one of its names."""
    names = sorted((n for n in vars(keras.layers) if n[0] != "_"), key=lambda n: (len(n), n))
    found = {id(getattr(keras.layers, name)): name for name in reversed(names)}
    assert not set(EXCEPTIONS) - set(found.values())
    return {n: getattr(keras.layers, n) for n in sorted(found.values()) if n not in EXCEPTIONS}


def guessed(name, layer):
    """A call of a layer of one input; none if it has other arguments."""
    parameters = inspect.signature(layer.__init__).parameters if inspect.isclass(layer) else {}
    required = [
        n
        for n, one in parameters.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD and n != "self"
    ]
    arguments = next((a for begin, a in ARGUMENTS.items() if name.startswith(begin)), "")
    if not parameters or len(required) > len(arguments.split(", ")) or (required and not arguments):
        return []
    if "seed" in parameters:
        arguments += ", seed=1" if arguments else "seed=1"
    if "value_range" in parameters:
        arguments += ", value_range=(0, 1)"
    dimensions = re.search(r"([123])D", name)
    if dimensions and dimensions[1] == "3" and "Pool" in name:  # there are no kernels for float64
        arguments += ', dtype="float32"' if arguments else 'dtype="float32"'
    given = {"1": "seq", "2": "images", "3": "volumes"}[dimensions[1]] if dimensions else "x"
    return [f"{name}({arguments})({'images' if name.startswith('Random') else given})"]
