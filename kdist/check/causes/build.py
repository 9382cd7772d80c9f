"""Causes in the function that makes the model."""

import ast
from typing import Any

import keras

from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import calls_in, first, line_of_definition, line_of_global, name_of_call


def module_level_model(evidence: Evidence) -> Finding | None:
    """`build` returns a model that was made once, or a part of it was, such as a layer."""
    if not evidence.shared_parts:
        return None
    first, *_ = evidence.shared_parts
    is_model = isinstance(first, keras.Model) and first.compiled
    what = "the same model" if is_model else f"a model with the same {_described(first)}"
    it = "the model, its layers and its optimizer" if is_model else "it"
    return Finding(
        name="module_level_model",
        text=f"build returns {what} each time, so every training continues the one before, and the"
        " variables are not in the strategy's scope",
        shown_by="two calls of build, compared",
        fix=f"make {it} inside the function",
        line=line_of_global(evidence.plan.build, first) or line_of_definition(evidence.plan.build),
    )


def _described(part: Any) -> str:
    kinds = {
        keras.layers.Layer: "layer",
        keras.optimizers.Optimizer: "optimizer",
        keras.metrics.Metric: "metric",
    }
    kind = next(word for base, word in kinds.items() if isinstance(part, base))
    return f"{kind} {part.name} ({type(part).__name__})"


def build_without_seed(evidence: Evidence) -> Finding | None:
    """Initial weights that are drawn without a seed."""
    if evidence.is_built_alike:
        return None
    return Finding(
        name="build_without_seed",
        text="the initial weights are drawn without a seed, so every training starts elsewhere",
        shown_by="two calls of build after keras.utils.set_random_seed gave different weights",
        fix="draw them with Keras's initializers, or pass a seed: np.random.default_rng(0)",
        line=first(calls_in(evidence.plan.build, draws_unseeded))
        or line_of_definition(evidence.plan.build),
    )


_GENERATORS = ("default_rng", "RandomState", "SystemRandom", "Random", "Generator.from_entropy")


def draws_unseeded(call: ast.Call) -> bool:
    """Whether a call makes a generator of random numbers without a seed, or reads the time."""
    name = name_of_call(call)
    if name.endswith(("os.urandom", "time.time", "time_ns", "from_non_deterministic_state")):
        return True
    if name.startswith("secrets."):
        return True
    return name.rpartition(".")[2] in _GENERATORS and not call.args and not call.keywords
