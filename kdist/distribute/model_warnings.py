"""Warnings about models that depend on the number of replicas or train on too few samples."""

import os
import threading
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..batch_norm.find import SMALL_BATCH, unsynchronized_batch_norms, values_per_channel
from ..source_lines import innermost_line

# What warnings about a line of the user's program begin with, by which `kdist check` knows them.
OF_NUMBER = "This number is neither a mean nor a sum over the samples of the batch"
OF_PAIRS = "Each of these values depends on several samples of the batch"
OF_GRADIENT = "This changes each replica's own gradient before the optimizer sums"
OF_WRITE = "This is computed from each replica's own samples and written"
OF_COPIES = "its state differs between replicas"


def warn_of_inexact(model: keras.Model) -> None:
    """Warn about layers and steps that make a model depend on the number of replicas."""
    plain = unsynchronized_batch_norms(model)
    if plain:
        warnings.warn(
            f"{', '.join(layer.name for layer in plain)}: batch normalization uses the samples of"
            " each replica separately, so the model depends on the number of replicas. Make the"
            " model with strategy.build(lambda: ...), or fix it with"
            ' kdist.convert_batch_norm(model, to="synchronized"). Until then, the moving statistics'
            " are averaged over replicas.",
            stacklevel=2,
        )
    custom = _upstream.overridden_steps(model)
    opaque = [name for name in custom if _upstream.custom_step(getattr(model, name)) is None]
    if opaque:
        warnings.warn(
            f"the {' and '.join(opaque)} of {type(model).__name__} is not a method, or is a"
            " @tf.function: kdist cannot adapt it, so the model depends on the number of replicas."
            " Write it as a method of the model without @tf.function; Keras compiles it anyway.",
            stacklevel=2,
        )
    elif custom and model.run_eagerly:
        warnings.warn(
            f"the {' and '.join(custom)} of {type(model).__name__} runs eagerly: kdist finds out"
            " from TensorFlow's graph which numbers are means over the samples and which are sums,"
            " and without a graph takes all for means. If one is not, the model depends on the"
            " number of replicas. Compile it with run_eagerly=False, or train on one replica.",
            stacklevel=2,
        )


def warn_of_number(number: Any, named: set[str]) -> None:
    """Warn about a number in a user's loss that is neither a mean nor a sum.

    Args:
        number: A scalar tensor; or values that depend on several samples each.
        named: Lines of the user's program that were already reported; the number's is added.
    """
    what = (
        f"{OF_PAIRS}, and each replica computes them from its own samples, so the model depends on"
        " the number of replicas. Compute them"
        if len(number.shape)
        else f"{OF_NUMBER}, so on several replicas it is averaged, and the model depends on their"
        " number. Compute it"
    )
    _warn_of_line(
        number,
        named,
        f"{what} from the rows of all replicas: put kdist.gather(...) around the values used here.",
    )


def warn_of_gradient(gradient: Any, named: set[str]) -> None:
    """Warn about a gradient that was changed before it was summed over replicas.

    Args:
        gradient: A tensor that an optimizer is to apply.
        named: Lines of the user's program that were already reported; the gradient's is added.
    """
    _warn_of_line(
        gradient,
        named,
        f"{OF_GRADIENT} the gradients over"
        " replicas, so the model depends on their number. Change the sum instead: gradients ="
        " kdist.sum_gradients(tape.gradient(loss, variables)), or let the optimizer clip"
        " (clipnorm=, global_clipnorm=, clipvalue=).",
    )


def warn_of_write(value: Any, named: set[str]) -> None:
    """Warn about a value that differs between replicas and is written into a variable.

    Args:
        value: A tensor that a step assigns to a variable.
        named: Lines of the user's program that were already reported; the value's is added.
    """
    _warn_of_line(
        value,
        named,
        f"{OF_WRITE} into a variable, so the"
        " variable's copies differ. Compute it from the samples of all replicas: gradients ="
        " kdist.sum_gradients(tape.gradient(loss, variables)), or kdist.gather(...) of values.",
    )


def _warn_of_line(tensor: Any, named: set[str], text: str) -> None:
    """Warn about a tensor, once per line of the user's program."""
    line = _line_of(tensor)
    if line not in named:
        named.add(line)
        warnings.warn(f"{line}\n    {text}", stacklevel=3)


def _line_of(tensor: Any) -> str:
    """Return the line that computes a tensor, such as `my_model.py:31: x = tf.sqrt(y)`.

    Where Keras computes it, that of what it is computed from, such as a regularizer's result.
    """
    found = [tensor.op]
    for operation in found:
        line = innermost_line(operation.traceback, lambda path: not path.startswith(_LIBRARIES))
        if line:
            return line
        if len(found) < _MOST_OPERATIONS:
            found += [one.op for one in operation.inputs if one.op not in found]
    return f"the operation {tensor.op.type}"


_MOST_OPERATIONS = 32
_LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for folder in (
        Path(__file__).parents[1],  # all of kdist
        *(Path(origin).parent for origin in (keras.__file__, tf.__file__, threading.__file__)),
    )
)


def warn_of_differing_copies(model: keras.Model, named: set[str]) -> None:
    """Warn about layers whose state differs between replicas.

    Args:
        model: A model that was trained or evaluated.
        named: Layers that were already reported; the new ones are added.
    """
    differing = {
        layer.name for layer, variable in _upstream.layer_states(model) if _differs(variable)
    } - named
    if differing:
        named |= differing
        warnings.warn(
            f"{', '.join(sorted(differing))}: {OF_COPIES}, because each"
            " replica computes it from its own samples, and only the first replica's is saved."
            " Compute it from kdist.gather(...) of the values, which are those of all replicas.",
            stacklevel=2,
        )


def _differs(variable: keras.Variable) -> bool:
    copies = getattr(variable.value, "values", [])
    if len(copies) < 2 or not copies[0].dtype.is_floating:
        return False
    first, *others = [copy.numpy() for copy in copies]
    # Sums over replicas are identical, but what replicas compute from them may be rounded
    # differently.
    return not all(np.allclose(first, other, rtol=1e-4, equal_nan=True) for other in others)


def warn_of_small_batches(model: keras.Model, global_batch: int, replicas: int) -> None:
    """Warn about batch norms whose statistics come from too few values.

    Args:
        model: The model that is about to train.
        global_batch: Samples per full batch, over all replicas.
        replicas: Number of replicas that the batch is divided over.
    """
    samples = -(-global_batch // replicas)
    counts = {
        norm.name: values_per_channel(norm, samples) for norm in unsynchronized_batch_norms(model)
    }
    small = {name: count for name, count in counts.items() if count and count < SMALL_BATCH}
    if not small:
        return
    synchronize = 'synchronize it with kdist.convert_batch_norm(model, to="synchronized"), '
    warnings.warn(
        f"{', '.join(small)}: batch normalization over {min(small.values())} values per channel on"
        f" each replica, as the global batch of {global_batch} is divided over {replicas}. Fewer"
        f" than {SMALL_BATCH} values are too noisy: {synchronize * (replicas > 1)}use a larger"
        ' batch, or replace it with kdist.convert_batch_norm(model, to="group").',
        stacklevel=2,
    )
