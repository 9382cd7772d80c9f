"""The one home of private Keras and TensorFlow names, and of what is changed in them.

Every change is inert unless a model is trained under kdist's strategy on several replicas.
`tests/test_upstream.py` has a canary for each, which fails on the day upstream needs it no more.
"""

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as keras_loss
from keras.src.random.seed_generator import SeedGenerator
from tensorflow.python.distribute import distribute_lib

KNOWN_KERAS = ("3.15",)

# Keeps the seeds of replicas apart (2^32 divided by the golden ratio: multiples spread evenly).
_SEED_STRIDE = 0x9E3779B9


def warn_of_unknown_keras(version: str) -> None:
    """Warn when the private names below were never tried with this Keras."""
    if not version.startswith(KNOWN_KERAS):
        warnings.warn(
            f"kdist was tested with Keras {' and '.join(KNOWN_KERAS)}, not with {version}: if"
            " training on several replicas fails, install one of those",
            stacklevel=2,
        )


def flatten_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Every layer of the model, nested ones too, each once."""
    return list(model._flatten_layers(include_self=False))


def stock_step(fn: Callable[..., Any]) -> tuple[keras.Model, str] | None:
    """The model and `"train_step"`, `"test_step"` or `"predict_step"`, if `fn` is Keras's own.

    Keras hands `strategy.run` the bound method for the first two, and a closure for prediction.
    """
    model = getattr(fn, "__self__", None)
    for name in ("train_step", "test_step"):
        if getattr(fn, "__func__", None) is getattr(TensorFlowTrainer, name):
            return model, name
    if "TensorFlowTrainer.make_predict_function" in getattr(fn, "__qualname__", ""):
        return model, "predict_step"
    return None


def own_steps(model: keras.Model) -> list[str]:
    """Names of the steps that the model's user wrote."""
    return [name for name in ("train_step", "test_step") if not stock_step(getattr(model, name))]


def computes_stock_metrics(model: keras.Model) -> bool:
    """Whether the model's logs are those of its metrics, and no others."""
    return type(model).compute_metrics is TensorFlowTrainer.compute_metrics


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """The model's output, as Keras's own steps call it."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool
) -> Any:
    """The model's loss, also where it overrides `compute_loss` with an older signature."""
    return model._compute_loss(
        x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training
    )


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric behind `loss` in the logs."""
    return model._loss_tracker


class LossRules(Protocol):
    """What a step on several replicas does in place of Keras's 1 / replicas."""

    def reduced(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """From `loss`, the values of this replica reduced, to its part in the global batch's."""

    def additional(self, loss: Any) -> Any:
        """The same for what a layer added by `add_loss`."""

    def zero_if_empty(self, value: Any) -> Any:
        """The value, or 0 where this replica has no sample."""

    def share(self) -> Any:
        """This replica's samples as a fraction of the global batch's."""

    def total(self, value: Any) -> Any:
        """The sum over replicas, which gradients flow through."""

    def gathered(self, tensor: Any) -> Any:
        """The rows of all replicas, which gradients flow through."""


# Replicas are traced in threads of their own, so each sees its own rules.
_active = threading.local()


@contextlib.contextmanager
def loss_rules(rules: LossRules) -> Iterator[None]:
    """Inside, every Keras loss that this thread computes is reduced by `rules`."""
    _active.rules, _active.losses, _active.whole_batch = rules, {}, False
    try:
        yield
    finally:
        _active.rules, _active.losses = None, {}


def _rules() -> LossRules | None:
    return getattr(_active, "rules", None)


def _replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorator: puts `replacement(original, *args)` in the place of `owner.name`, once."""
    original = getattr(owner, name)

    def put(replacement: Callable[..., Any]) -> None:
        if not hasattr(original, "_kdist"):
            wrapped = functools.wraps(original)(functools.partial(replacement, original))
            method = functools.wraps(original)(lambda *args, **kwargs: wrapped(*args, **kwargs))
            method._kdist = True  # type: ignore[attr-defined]
            setattr(owner, name, method)

    return put


@_replace(keras_loss, "scale_loss_for_distribution")
def _scale(original: Callable[..., Any], value: Any) -> Any:
    """No 1 / replicas, which is wrong for uneven batches and rounded to float32."""
    return value if _rules() else original(value)


@_replace(keras_loss, "unscale_loss_for_distribution")
def _unscale(original: Callable[..., Any], value: Any) -> Any:
    rules = _rules()
    return rules.zero_if_empty(value) if rules else original(value)


@_replace(keras_loss, "reduce_weighted_values")
def _reduce(
    original: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    loss = original(values, sample_weight, mask, reduction, dtype)
    rules = _rules()
    if rules is None or _active.whole_batch:
        return loss
    _active.scalar = not len(values.shape)
    return rules.reduced(loss, values, sample_weight, mask, reduction)


# Not means over samples: sums over the batch in a ratio, and pairs of samples.
_OF_A_WHOLE_BATCH = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


@_replace(keras.losses.Loss, "__call__")
def _call_loss(
    original: Callable[..., Any], loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a loss is no mean over samples: no sum of parts is exact there.

    A loss that returns one number may be any function of the batch.
    """
    rules = _rules()
    if rules is None or _active.whole_batch:
        return original(loss, y_true, y_pred, sample_weight)
    _active.scalar = False
    if getattr(loss, "fn", None) not in _OF_A_WHOLE_BATCH:
        value = original(loss, y_true, y_pred, sample_weight)
        if not _active.scalar:
            return value
    mask = keras.src.backend.get_keras_mask(y_pred)
    data = [None if v is None else rules.gathered(v) for v in (y_true, y_pred, sample_weight, mask)]
    if mask is not None:
        keras.src.backend.set_keras_mask(data[1], data[3])
    _active.whole_batch = True
    try:
        return original(loss, *data[:3])
    finally:
        _active.whole_batch = False


@_replace(TensorFlowTrainer, "_aggregate_additional_loss")
def _additional(original: Callable[..., Any], model: keras.Model, loss: Any) -> Any:
    rules = _rules()
    return original(model, rules.additional(loss) if rules else loss)


@_replace(keras.metrics.Mean, "update_state")
def _update_mean(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A mean over this replica's samples counts by their share, not as one update of many."""
    rules = _rules()
    if rules and sample_weight is None and not len(getattr(values, "shape", ())):
        values, sample_weight = rules.zero_if_empty(values), rules.share()
    return original(metric, values, sample_weight)


@_replace(keras.layers.BatchNormalization, "_moments")
def _moments(original: Callable[..., Any], layer: Any, inputs: Any, mask: Any) -> Any:
    """Synchronized where there is a mask too."""
    rules = _rules()
    if rules is None or mask is None or not layer.synchronized:
        return original(layer, inputs, mask)
    weight = tf.cast(keras.ops.broadcast_to(mask[..., None], tf.shape(inputs)), inputs.dtype)

    def global_sum(values: Any) -> Any:
        values = tf.where(weight > 0, values, tf.zeros_like(values))
        return rules.total(tf.reduce_sum(values, layer._reduction_axes))

    count = global_sum(weight) + keras.config.epsilon()
    mean = global_sum(inputs) / count
    return mean, global_sum(tf.square(inputs - mean)) / count


@_replace(keras.layers.Layer, "add_loss")
def _add_loss(original: Callable[..., Any], layer: keras.layers.Layer, loss: Any) -> None:
    """Kept for this replica alone.

    Layers are shared, and a synchronized batch norm behind this one lets the next replica begin
    its forward pass, which would throw away what was added here and add its own.
    """
    original(layer, loss)
    if _rules():
        _active.losses.setdefault(id(layer), []).extend(layer._losses)
        layer._losses.clear()


@_replace(keras.layers.Layer, "_get_own_losses")
def _get_own_losses(original: Callable[..., Any], layer: keras.layers.Layer) -> list[Any]:
    return [*_active.losses.get(id(layer), ())] if _rules() else original(layer)


@_replace(keras.layers.Layer, "_clear_losses")
def _clear_losses(original: Callable[..., Any], layer: keras.layers.Layer) -> None:
    if _rules():
        _active.losses.pop(id(layer), None)
    original(layer)  # goes on to the layers inside


def effective_sample_weight(sample_weight: Any, mask: Any, dtype: Any, reduction: str) -> Any:
    """The weights by which Keras multiplies a loss's values."""
    if mask is not None:
        mask = keras.ops.convert_to_tensor(mask, dtype=dtype)
    return keras_loss.apply_mask(sample_weight, mask, dtype=dtype, reduction=reduction)


@_replace(SeedGenerator, "next")
def _next_seed(original: Callable[..., Any], generator: Any, ordered: bool = True) -> Any:
    """Another seed on every replica: Keras draws the same dropout mask on all."""
    seed = original(generator, ordered)
    context = tf.distribute.get_replica_context()
    if context is None or not hasattr(context.strategy, "draws_differ"):
        return seed
    replica = tf.cast(context.replica_id_in_sync_group, "uint32")
    offset = tf.stack([replica * tf.constant(_SEED_STRIDE, "uint32"), tf.constant(0, "uint32")])
    return seed + tf.cast(offset, seed.dtype)


@_replace(TensorFlowTrainer, "_maybe_symbolic_build")
def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> None:
    """Lets the strategy look at a model before Keras builds its optimizer and its functions."""
    prepare = getattr(model.distribute_strategy, "prepare", None)
    if prepare is not None:
        prepare(model)
        if iterator is not None and data_batch is None:
            # Keras takes a batch from a throw-away iterator, whose read-ahead a generator loses.
            data_batch = _batch_spec(iterator)
            iterator = None if data_batch is not None else iterator
    original(model, iterator, data_batch)


def _batch_spec(iterator: Any) -> Any:
    """Shapes and types of a batch; `None` where they are not known."""
    spec = keras.tree.map_structure(
        lambda leaf: getattr(leaf, "_value_specs", [leaf])[0],
        iterator._distributed_dataset.element_spec,
    )
    known = all(
        isinstance(leaf, tf.TensorSpec)
        and leaf.shape.rank is not None
        and leaf.shape[1:].is_fully_defined()
        for leaf in keras.tree.flatten(spec)
    )
    return spec if known else None


def scope_of(model: keras.Model) -> tf.distribute.Strategy | None:
    """The strategy in whose scope the model was made."""
    return model._distribute_strategy


def distribute(variables: Iterable[keras.Variable], strategy: tf.distribute.Strategy) -> None:
    """Give variables that were made outside the scope a copy on every replica, value kept."""
    for variable in variables:
        if not isinstance(variable._value, tf.distribute.DistributedValues):
            with tf.init_scope(), strategy.scope():
                variable._initialize(variable._value.numpy())


def set_strategy(optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy) -> None:
    """Tell an optimizer made outside the scope which strategy its variables are made for."""
    for one in _with_inner(optimizer):
        one._distribution_strategy = strategy


def _with_inner(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    inner = [*getattr(optimizer, "_inner_optimizers", [])]  # MultiOptimizer
    if hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        inner.append(optimizer.inner_optimizer)
    return [optimizer, *(one for part in inner for one in _with_inner(part))]


def replica_index() -> int:
    """Index of the replica that this thread traces."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


@contextlib.contextmanager
def own_copies(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> Iterator[None]:
    """Inside, a replica sees only its own copy of the variables, and no strategy.

    What then runs is what Keras runs on one replica: no all-reduce, no merge call. Every other
    replica thread waits meanwhile (TensorFlow lets one go on only at a merge call), so swapping
    the values of shared objects is safe.
    """
    replica = replica_index()
    swapped = [*variables, *optimizer.variables]
    values = [variable._value for variable in swapped]
    optimizers = _with_inner(optimizer)
    strategies = [one._distribution_strategy for one in optimizers]
    alone = distribute_lib._get_default_strategy()
    try:
        for variable, value in zip(swapped, values, strict=True):
            if isinstance(value, tf.distribute.DistributedValues):
                variable._value = value.values[replica]
        for one in optimizers:
            one._distribution_strategy = alone
        with tf.distribute.ReplicaContext(alone, 0):
            yield
    finally:
        for variable, value in zip(swapped, values, strict=True):
            variable._value = value
        for one, strategy in zip(optimizers, strategies, strict=True):
            one._distribution_strategy = strategy


warn_of_unknown_keras(keras.__version__)
