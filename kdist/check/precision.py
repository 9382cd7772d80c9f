"""`Precision`: the numbers that a training computes in, and how far rounding may take them."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

Level = Literal["float64", "float32", "float16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision:
    """The floating-point numbers of a training.

    Attributes:
        level: The least precise numbers that the model computes in; `float16` for bfloat16 too.
        asked: What Keras was set to, `float64` or `float32`.
        reason: Why they are not float64; empty if they are.
        weights_epsilon: Of the numbers that the weights are kept in, the distance from 1 to the
            next; it is used only where `level` is not float64.
    """

    level: Level
    asked: Literal["float64", "float32"]
    reason: str = ""
    weights_epsilon: float = 2.0**-23

    @property
    def weights_tolerance(self) -> float:
        """How far rounding may take weights, state and predictions; relative to those above 1."""
        return {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}[self.level]

    @property
    def movement_tolerance(self) -> float:
        """How far rounding may take weights, relative to how far they have moved in training.

        Only outside float64: with a small learning rate, wrong gradients move the weights by less
        than `weights_tolerance`.
        """
        return {"float64": math.inf, "float32": 1e-3, "float16": 0.1}[self.level]

    @property
    def metrics_tolerance(self) -> float:
        """The same for losses and metrics: Keras rounds some of their constants to float32."""
        return {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2}[self.level]

    @property
    def rounding(self) -> float:
        """The relative change that stands for rounding where its effect is measured."""
        return {"float64": 2.0**-44, "float32": 2.0**-22, "float16": 2.0**-9}[self.level]

    def __str__(self) -> str:
        if self.level == "float64":
            return f"float64: equal is within {self.weights_tolerance:.0e}"
        return (
            f"{self.level}, as {self.reason}: equal is within {self.weights_tolerance:.0e}, weights"
            f" within {self.movement_tolerance:g} of how far they have moved, or what rounding"
            " makes of it on one replica"
        )


@contextlib.contextmanager
def keras_in(asked: Literal["float64", "float32"]) -> Iterator[None]:
    """Set Keras's floats for the block, and restore them: a model's code may change them too.

    A dtype policy that the program has chosen, such as mixed precision, stays.
    """
    import keras

    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    if asked == "float64" and policy.name == "float32":
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
