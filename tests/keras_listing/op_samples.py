"""Sample inputs of functions of `keras.ops`: expressions of a batch.

Those of functions whose arguments cannot be guessed are in `op_calls.txt`. What Keras itself cannot
compute is left out, such as `pad` by a single number, or `trace` of a matrix that is not square.
"""

import inspect

import keras
import numpy as np

ROWS = 10
_RNG = np.random.default_rng(3)


def _normal(*shape):
    return _RNG.normal(size=(ROWS, *shape))


# Names of inputs in the expressions: each has the rows of the batch as its first axis.
INPUTS = {
    "x": _normal(8),
    "y": _normal(8),
    "u": _RNG.uniform(-0.8, 0.8, size=(ROWS, 8)),
    "p": _RNG.uniform(1.1, 2.5, size=(ROWS, 8)),
    "holes": np.where(_RNG.uniform(size=(ROWS, 8)) < 0.15, np.nan, _normal(8)),
    "i": _RNG.integers(0, 4, size=(ROWS, 8), dtype="int32"),
    "j": _RNG.integers(1, 4, size=(ROWS, 8), dtype="int32"),
    "k": _RNG.integers(0, 4, size=ROWS, dtype="int32"),
    "b": _RNG.uniform(size=(ROWS, 8)) < 0.6,
    "c": _RNG.uniform(size=(ROWS, 8)) < 0.4,
    "q": _normal(4, 4) + 4 * np.eye(4),
    "spd": np.eye(4) + (lambda a: a @ a.transpose(0, 2, 1))(_normal(4, 4)),
    "seq": _normal(12, 4),
    "images": _RNG.uniform(0.05, 0.95, size=(ROWS, 6, 6, 3)),
    "volumes": _normal(4, 4, 4, 2),
    "heads": _normal(5, 2, 4),
    "corners": np.tile([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0], [5.0, 5.0]], (ROWS, 1, 1)),
}

# Inputs of functions of one argument that are not defined for all numbers.
DOMAINS = {
    "u": "arccos arcsin arctanh erfinv",
    "p": "arccosh log log10 log1p log2 rsqrt sqrt",
    "i": "bitwise_invert bitwise_not",
    "b": "logical_not",
    "holes": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd"
        " nansum nanvar isnan isfinite"
    ),
    "q": "det inv logdet pinv slogdet lu_factor matrix_rank",
    "spd": "cholesky cholesky_inverse eigh",
    "i, j": (
        "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm"
        " left_shift right_shift"
    ),
    "b, c": "logical_and logical_or logical_xor",
}

# Functions that Keras cannot compute of a batch whose size is not known while tracing.
KNOWN_ROWS = [
    "associative_scan",
    "gcd",
    "lcm",
    "lstsq",
    "qr",
    "unfold",
    "unravel_index",
    "image.map_coordinates",
]

# Functions that compute in float32, also what they are given in float64.
ROUNDED = ["ctc_loss", "image.resize"]

# Functions that are given nothing of a batch, or are no computation.
EXCEPTIONS = {
    "arange": "takes no batch",
    "bartlett": "takes no batch",
    "blackman": "takes no batch",
    "corrcoef": "asks for the value of a tensor, which no graph has",
    "convert_to_numpy": "leaves TensorFlow",
    "dtype": "returns a name",
    "empty": "takes no batch",
    "eye": "takes no batch",
    "full": "takes no batch",
    "hamming": "takes no batch",
    "hanning": "takes no batch",
    "identity": "takes no batch",
    "is_tensor": "returns no tensor",
    "isin": "asks for the value of a tensor, which no graph has",
    "kaiser": "takes no batch",
    "kron": "takes a tensor for a number, which no graph allows",
    "ndim": "returns no tensor",
    "ones": "takes no batch",
    "tri": "takes no batch",
    "vectorize": "the backend of TensorFlow has none",
    "zeros": "takes no batch",
}


def functions():
    """Functions of `keras.ops` and of its modules, by the names that expressions call."""
    found = {n: f for n, f in vars(keras.ops).items() if n[0] != "_" and not inspect.ismodule(f)}
    known = {id(function) for function in found.values()}
    for part, module in vars(keras.ops).items():
        if inspect.ismodule(module) and part[0] != "_":
            for name, function in vars(module).items():
                if name[0] != "_" and id(function) not in known:
                    found[f"{part}.{name}"] = function
    assert not set(EXCEPTIONS) - set(found)
    return {name: function for name, function in found.items() if name not in EXCEPTIONS}


def guessed(name, function):
    """Calls of a function of one or two tensors; none if it takes anything else."""
    parameters = inspect.signature(function).parameters
    required = [n for n, one in parameters.items() if one.default is inspect.Parameter.empty]
    names = [domain for domain, members in DOMAINS.items() if name in members.split()]
    if required in (["x1", "x2"], ["x", "y"]):
        one, two = (names or ["x, y"])[0].split(", ")
        pairs = (one, two), (one, f"{two}[0]"), (f"{one}[:, 0]", f"transpose({two})")
        return [f"{name}({first}, {second})" for first, second in pairs]
    if required not in (["x"], ["array"], ["abs_"]):
        return []
    x = (names or ["x"])[0]
    found = [f"{name}({x})"]
    if x in ("q", "spd"):
        found.append(f"{name}(mean({x}, 0))")
    if "axis" in parameters:
        keeps = ", keepdims=True" if "keepdims" in parameters else ""
        found += [f"{name}({x}, axis=0{keeps})", f"{name}({x}, axis=1)"]
        found += [f"{name}(transpose({x}), axis=-1)", f"{name}(transpose({x}), axis=0)"]
    if "keepdims" in parameters and "arg" not in name:
        found.append(f"{name}(seq, axis=(0, 2))")
    return found
