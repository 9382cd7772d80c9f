"""`estimate_memory`: the memory of a training, before it runs."""

import dataclasses
import math
from typing import Any

import keras

from .. import _upstream
from ..arguments import positive_integer
from ..batch_norm.convert import convert_batch_norm
from ..batch_norm.find import batch_norms
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..user_model.code_errors import reason_of
from ..user_model.compiled_model import checked_model
from ..user_model.data import UserData
from ..user_model.functions import UserFunctions
from .functions import Function, as_functions
from .graph_memory import name_of_result, peak_bytes, steps_of
from .short_fit import batch_specs

_BATCH = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """The bytes that a replica needs for training, by purpose.

    Attributes:
        batch_size: Samples per replica and step.
        weights: Trainable and other variables of the model.
        optimizer: What the optimizer stores, such as momentum.
        gradients: One for each trainable weight.
        activations: What else is needed at the peak: the batch, the outputs of layers that the
            backward pass reads, and intermediate results. At the peak some gradients may not exist
            yet, so that activations can use their place.
        unknown: Operations of the step that are not counted, such as loops.
        any_length: Whether the data say no length of a sample, such as of a sentence. Most of the
            activations are then unknown.
    """

    batch_size: int
    weights: int
    optimizer: int
    gradients: int
    activations: int
    unknown: int = 0
    any_length: bool = False

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.optimizer + self.gradients + self.activations


def estimate_memory(build: Function, data: Any, *, batch_size: int | None = None) -> MemoryEstimate:
    """Estimate the memory that training needs per replica, without running a step.

    It counts the weights and what the optimizer stores. The rest is read from the graph of a
    training step: the largest set of tensors that are needed at the same time, see
    `kdist.finders.graph_memory`. A custom `train_step` is read as it is, including the update of
    the weights.

    It does not count the memory of TensorFlow itself (about 0.6 GiB, on a GPU also CUDA's
    libraries), scratch memory of convolutions, prefetched batches, and memory lost to
    fragmentation. `kdist find memory --measure` also measures a training run.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`.
        data: A function that returns the data, as for `kdist.find_learning_rate`.
        batch_size: Samples per replica and step, by default 32. Batched data keep their batches.

    Returns:
        The bytes.

    Raises:
        UserError: A function fails.

    Example:
        ```python
        memory = kdist.estimate_memory("my_model.py:build", "data", batch_size=64)
        print(memory.total / 2**30)
        ```
    """
    functions, loaded, batch = load_batch(build, data, batch_size)
    return estimate_model(functions, batch_specs(loaded, batch), batch)


def load_batch(
    build: Function, data: Any, batch_size: int | None
) -> tuple[UserFunctions, UserData, int]:
    """Return the functions, the data and the samples of a batch, by default 32 or the data's own.

    Args:
        build: As for `estimate_memory`, as all that follow.
        data: As there.
        batch_size: As there.
    """
    if batch_size is not None:
        positive_integer("batch_size", batch_size, hint="pass samples per replica")
    functions = as_functions(build, data)
    MirroredStrategy(replicas=1)  # a later one may still split the CPU
    loaded = functions.load_data(batch_size or _BATCH)
    functions.check_batch(loaded, batch_size)
    return functions, loaded, loaded.own_batch() or batch_size or _BATCH


def estimate_model(functions: UserFunctions, specs: tuple[Any, ...], batch: int) -> MemoryEstimate:
    """Estimate the memory of a training with batches of given shapes.

    Args:
        functions: Of which the first makes the model.
        specs: `tf.TensorSpec`s of inputs, targets and weights.
        batch: Samples in them.
    """
    model = checked_model(functions.make_model(), function="build")
    if batch_norms(model):
        convert_batch_norm(model, to="synchronized")  # as `strategy.build` does
    if "train_step" in _upstream.overridden_steps(model):
        graph, results = _trace_own_step(model, specs)
    else:
        graph, results = _trace(model, specs)
        model.optimizer.build(model.trainable_variables)
    peak = peak_bytes(steps_of(graph), results)
    gradients = _bytes(model.trainable_variables)
    kept = [variable for one in _upstream.optimizers_of(model) for variable in one.variables]
    return MemoryEstimate(
        batch_size=batch,
        weights=_bytes(model.variables),
        optimizer=_bytes(kept),
        gradients=gradients,
        activations=max(peak.peak - gradients, 0),
        unknown=peak.unknown,
        any_length=any(None in spec.shape[1:] for spec in keras.tree.flatten(specs) if spec),
    )


def _trace(model: keras.Model, specs: tuple[Any, ...]) -> tuple[Any, list[str]]:
    """The graph of a forward and a backward pass, and the names of the gradients in it."""
    import tensorflow as tf

    def step(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=sample_weight)
        return tape.gradient(loss, [weight.value for weight in model.trainable_variables])

    concrete = _graph_function(step, specs)
    return concrete.graph, [tensor.name for tensor in concrete.outputs]


def _trace_own_step(model: keras.Model, specs: tuple[Any, ...]) -> tuple[Any, list[str]]:
    """The graph of the model's own step, and the names of what it returns and does."""

    def step(*batch: Any) -> Any:
        return model.train_step(keras.utils.pack_x_y_sample_weight(*batch))

    concrete = _graph_function(step, specs)
    done = [name_of_result(operation) for operation in concrete.graph.control_outputs]
    return concrete.graph, [tensor.name for tensor in concrete.outputs] + done


def _graph_function(step: Any, specs: tuple[Any, ...]) -> Any:
    import tensorflow as tf

    try:
        return tf.function(step, autograph=False).get_concrete_function(*specs)
    except Exception as error:
        raise UserError(f"the model does not take the data: {reason_of(error)}") from error


def _bytes(variables: Any) -> int:
    import tensorflow as tf

    found = {id(one): one for one in variables}.values()
    return sum(int(tf.as_dtype(one.dtype).size) * math.prod(one.shape) for one in found)
