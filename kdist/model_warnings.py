"""What is said of a model before it trains on several replicas, or on few samples each."""

import warnings
from typing import Any

import keras
import numpy as np

from . import _upstream
from .batch_norms import SMALL_BATCH, unsynchronized_batch_norms, values_a_channel
from .loss_terms import line_of


def warn_of_inexact(model: keras.Model) -> None:
    """Say what in this model keeps it from being the same on any number of replicas."""
    plain = unsynchronized_batch_norms(model)
    if plain:
        warnings.warn(
            f"{', '.join(layer.name for layer in plain)}: batch normalization over the samples of"
            " each replica alone, so the model depends on the number of replicas. Make it by"
            " strategy.build(lambda: ...), or mend it by kdist.convert_batch_norm(model,"
            ' to="synchronized"). The moving statistics are averaged over replicas.',
            stacklevel=2,
        )
    own = _upstream.own_steps(model)
    opaque = [name for name in own if _upstream.own_step(getattr(model, name)) is None]
    if opaque:
        warnings.warn(
            f"the {' and '.join(opaque)} of {type(model).__name__} is no method, or a @tf.function:"
            " it runs as it is, and the model depends on the number of replicas. Write it as a"
            " method of the model without @tf.function; Keras compiles it anyway.",
            stacklevel=2,
        )


def warn_of_number(number: Any, named: set[str]) -> None:
    """Say of which number in a user's loss a replica cannot tell its part.

    Args:
        number: A scalar tensor.
        named: Lines of the user's program that were named already; the number's is added.
    """
    line = line_of(number)
    if line in named:
        return
    named.add(line)
    warnings.warn(
        f"{line}\n    This number is neither a mean nor a sum over the samples of the batch, so on"
        " several replicas it is averaged, and the model depends on their number. Compute it on"
        " the rows of all replicas: put kdist.gather(...) around the values that it is made of.",
        stacklevel=2,
    )


def warn_of_gradient(gradient: Any, named: set[str]) -> None:
    """Say of which gradient the replicas' no longer add up to the global batch's.

    Args:
        gradient: A tensor that an optimizer is to apply.
        named: Lines of the user's program that were named already; the gradient's is added.
    """
    line = line_of(gradient)
    if line in named:
        return
    named.add(line)
    warnings.warn(
        f"{line}\n    This changes a gradient of each replica's own samples, before the optimizer"
        " adds them up, so the model depends on the number of replicas. Change the sum: gradients ="
        " kdist.sum_gradients(tape.gradient(loss, variables)), or have the optimizer clip"
        " (clipnorm=, global_clipnorm=, clipvalue=).",
        stacklevel=2,
    )


def warn_of_differing_copies(model: keras.Model, named: set[str]) -> None:
    """Name the layers whose own state has become another on each replica.

    Args:
        model: A model that was trained or evaluated.
        named: Layers that were named already; the new ones are added.
    """
    differing = {
        layer.name for layer, variable in _upstream.layer_states(model) if _differs(variable)
    } - named
    if differing:
        named |= differing
        warnings.warn(
            f"{', '.join(sorted(differing))}: its state is another on each replica, as each"
            " computes it from its own samples, and a file holds that of the first. Compute it from"
            " kdist.gather(...) of the values, which are those of all replicas.",
            stacklevel=2,
        )


def _differs(variable: keras.Variable) -> bool:
    copies = getattr(variable.value, "values", [])
    if len(copies) < 2 or not copies[0].dtype.is_floating:
        return False
    first, *others = [copy.numpy() for copy in copies]
    # Sums over replicas are rounded alike, what each computes from them by itself may not be.
    return not all(np.allclose(first, other, rtol=1e-4, equal_nan=True) for other in others)


def warn_of_small_batches(model: keras.Model, global_batch: int, replicas: int) -> None:
    """Name the batch norms whose statistics come from too few values.

    Args:
        model: The model that is about to train.
        global_batch: Samples in a full batch of all replicas.
        replicas: Replicas that the batch is divided over.
    """
    samples = -(-global_batch // replicas)
    counts = {
        norm.name: values_a_channel(norm, samples) for norm in unsynchronized_batch_norms(model)
    }
    small = {name: count for name, count in counts.items() if count and count < SMALL_BATCH}
    if not small:
        return
    synchronize = 'synchronize it by kdist.convert_batch_norm(model, to="synchronized"), '
    warnings.warn(
        f"{', '.join(small)}: batch normalization over {min(small.values())} values a channel on"
        f" each replica, as the global batch of {global_batch} is divided over {replicas}. Fewer"
        f" than {SMALL_BATCH} say little about the data: {synchronize * (replicas > 1)}take a"
        ' larger batch, or replace it by kdist.convert_batch_norm(model, to="group").',
        stacklevel=2,
    )
