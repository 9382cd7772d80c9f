"""Private state of models, layers, metrics, optimizers and graphs."""

import inspect
import random
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.random.seed_generator import (
    GLOBAL_SEED_GENERATOR,
    SeedGenerator,
    global_seed_generator,
    make_default_seed,
)
from keras.src.utils import rng_utils
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.ops import control_flow_util
from tensorflow.python.util import _pywrap_util_port

from .hooks import StrategyHooks
from .optimizers import averaging_optimizers, flatten_optimizers

# An attribute of a global generator: the generators that continue it, by strategy.
_OF_STRATEGIES = "_kdist_generators"


def flatten_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return every layer of the model, including nested layers, each once."""
    return list(model._flatten_layers(include_self=False))


def stock_step(fn: Callable[..., Any]) -> tuple[keras.Model, str] | None:
    """Return the model and the name of the step if `fn` is a step of Keras, otherwise `None`.

    The names are `"train_step"`, `"test_step"` and `"predict_step"`. Keras passes the bound method
    to `strategy.run` for the first two, and a closure for prediction.
    """
    model = getattr(fn, "__self__", None)
    for name in ("train_step", "test_step"):
        if getattr(fn, "__func__", None) is getattr(TensorFlowTrainer, name):
            return model, name
    if "TensorFlowTrainer.make_predict_function" in getattr(fn, "__qualname__", ""):
        return model_of_prediction(fn), "predict_step"
    return None


def model_of_prediction(fn: Callable[..., Any]) -> keras.Model:
    """Return the model of the prediction step that Keras passes to `strategy.run`."""
    inner = inspect.unwrap(getattr(fn, "__wrapped__", fn))
    inner = getattr(inner, "python_function", inner)  # compiled with XLA
    model: keras.Model = inspect.getclosurevars(inner).nonlocals["self"]
    return model


class _GlobalSeed(SeedGenerator):
    """The generator of `seed=None`, made before a step that may use it.

    It takes its seed from Python's `random` at its first use, as Keras's generator does. Its place
    among the draws matters: the order of a `PyDataset`, for example, draws from `random`, too.
    """

    def __init__(self, *, is_due: bool = True, is_alone: bool = True) -> None:
        before = random.getstate()
        super().__init__()
        random.setstate(before)
        self.is_due, self._is_alone = is_due, is_alone

    def next(self, ordered: bool = True) -> Any:
        if self.is_due:
            self.is_due = False
            seed = make_default_seed()
            value = self.state._value
            if self._is_alone:  # several workers need the same seed
                with tf.init_scope():
                    for copy in getattr(value, "values", (value,)):
                        copy.assign([seed, 0])
        return super().next(ordered)


def global_seed(strategy: tf.distribute.Strategy) -> SeedGenerator:
    """Return the generator for `seed=None`, copied to every replica."""
    made = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    if made is not None and getattr(made.state._value, "_distribute_strategy", None) is strategy:
        return made
    with tf.init_scope(), strategy.scope():
        # Several workers would have to make the variable together.
        is_alone = getattr(strategy, "workers", 1) == 1
        generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
        if generator is None:
            generator = _GlobalSeed(is_alone=is_alone)
            use_global_seed(generator)
        value = generator.state._value
        is_copied = isinstance(value, tf.distribute.DistributedValues)
        if is_copied and is_alone and value._distribute_strategy is not strategy:
            # The steps of each strategy keep the generator that they were traced with.
            generators = vars(generator).setdefault(
                _OF_STRATEGIES, {value._distribute_strategy: generator}
            )
            if strategy not in generators:
                generators[strategy] = _GlobalSeed(is_due=getattr(generator, "is_due", False))
            generator = generators[strategy]
            vars(generator)[_OF_STRATEGIES] = generators
            generator.state.assign(value.values[0].numpy())
            use_global_seed(generator)
        distribute([generator.state], strategy)
    return generator


def use_global_seed(generator: SeedGenerator) -> None:
    """Use the generator in the current thread: Keras has one per thread."""
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)


def random_seed() -> int | None:
    """Return the seed that was given to `keras.utils.set_random_seed` or `tf.random.set_seed`."""
    seed: int | None = rng_utils.get_random_seed()
    return context.global_seed() if seed is None else seed


def custom_step(fn: Callable[..., Any]) -> tuple[keras.Model, str] | None:
    """Return the model and `"custom_step"` if `fn` is its custom step, otherwise `None`."""
    model = getattr(fn, "__self__", None)
    name = getattr(fn, "__name__", "")
    is_step = isinstance(model, keras.Model) and name in ("train_step", "test_step")
    return (model, "custom_step") if is_step and stock_step(fn) is None else None


def overridden_steps(model: keras.Model) -> list[str]:
    """Return the names of the steps that the model overrides."""
    return [name for name in ("train_step", "test_step") if not stock_step(getattr(model, name))]


def has_call(model: keras.Model) -> bool:
    """Whether the model has a `call` method; a model with custom steps may have none."""
    return type(model).call is not keras.Model.call


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """Return the model's output, called as in Keras's own steps."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool
) -> Any:
    """Return the model's loss, even if it overrides `compute_loss` with an older signature."""
    return model._compute_loss(
        x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training
    )


def is_compiled_by_xla() -> bool:
    """Whether the graph that is being traced will be compiled with XLA."""
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def optimization_barrier(value: Any) -> Any:
    """Return `value` behind a barrier to XLA's simplifications; for graphs that XLA compiles."""

    @tf.custom_gradient  # the operation has no gradient of its own
    def barrier(value: Any) -> tuple[Any, Any]:
        return gen_xla_ops.xla_optimization_barrier([value])[0], lambda upstream: upstream

    return barrier(value)


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def inputs_of(model: keras.Model) -> Any:
    """Return the symbolic inputs of a Functional or Sequential model, in their structure."""
    functional = getattr(model, "_functional", model)  # of a Sequential
    return getattr(functional, "_inputs_struct", [])


def strategy_of(model: keras.Model) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope the model was made."""
    return model._distribute_strategy


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the arguments of `compile` that Keras keeps to describe the model."""
    kept = getattr(model, "_compile_config", None)
    return {} if kept is None else dict(kept.config)


def metrics_of(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics of a model, also the metrics that Keras adds in the first traced step."""
    arguments = compile_arguments(model)
    compiled = tf.nest.flatten([arguments.get("metrics"), arguments.get("weighted_metrics")])
    return [*model.metrics, *(one for one in compiled if isinstance(one, keras.metrics.Metric))]


def distribute(variables: Iterable[keras.Variable], strategy: tf.distribute.Strategy) -> None:
    """Copy variables that were made outside the scope to every replica, with their values."""
    for variable in variables:
        own = strategy.extended.variable_created_in_scope(variable._value)
        if not own and not isinstance(variable._value, tf.distribute.DistributedValues):
            with tf.init_scope(), strategy.scope():
                variable._initialize(variable._value.numpy())


def set_strategy(optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy) -> None:
    """Set the strategy of an optimizer that was made outside the scope."""
    for one in flatten_optimizers(optimizer):
        one._distribution_strategy = strategy


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the compiled optimizer and all optimizers in attributes, for custom steps."""
    optimizers = {
        id(value): value
        for value in [getattr(model, "optimizer", None), *vars(model).values()]
        if isinstance(value, keras.optimizers.Optimizer)
    }
    return list(optimizers.values())


def custom_gradients() -> list[str]:
    """Return the names under which TensorFlow keeps them."""
    return [name for name in gradient_registry.list() if name.startswith("CustomGradient-")]


def forget_custom_gradients() -> None:
    """Discard the graphs of custom gradients that were traced so far.

    A traced function can still be run, and its gradients are part of it. Only the gradient of a
    function that had none when it was traced can no longer be taken.
    """
    for name in custom_gradients():
        gradient_registry._registry.pop(name, None)


def global_seed_state() -> keras.Variable | None:
    """Return the state of this thread's generator behind `seed=None`; `None` before it is made."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return None if generator is None else generator.state


def make_global_seed_state(strategy: tf.distribute.Strategy) -> keras.Variable:
    """Return the state of the generator behind `seed=None`, to be restored; make it if needed."""
    if isinstance(strategy, StrategyHooks):
        generator = global_seed(strategy)
        generator.is_due = False
        return generator.state
    return global_seed_generator().state


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that an optimizer was built for; an empty list before it is built."""
    return list(getattr(optimizer, "_trainable_variables", []))


def averaged_variables(
    optimizer: keras.optimizers.Optimizer,
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Return each trained variable with its moving average, from optimizers with averages."""
    return [
        pair
        for one in averaging_optimizers(optimizer)
        for pair in zip(
            trained_variables(one),
            getattr(one, "_model_variables_moving_average", []),
            strict=False,  # none before the optimizer is built
        )
    ]
