"""Rebuild a model in a strategy's scope."""

import contextlib
import dataclasses
import inspect
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from .. import layers, optimizers
from .._upstream.internals import compile_arguments, flatten_layers, optimizers_of, strategy_of
from ..errors import UserError
from ..optimizers import warm_up

LAMBDA = "<lambda>"
# Modules of the objects that `compile` and layers take by name. Optimizers are not among them:
# their names are in lower case, unlike the names of classes.
_NAMED = (
    keras.activations,
    keras.constraints,
    keras.initializers,
    keras.losses,
    keras.metrics,
    keras.regularizers,
)


@dataclasses.dataclass(frozen=True)
class PartNames:
    """The names of a model's parts in its description.

    Attributes:
        custom_objects: The part for each name, for Keras to find it.
        shared: The parts that share their own name with a part or with Keras, by their new name in
            the description.
    """

    custom_objects: dict[str, Any]
    shared: dict[str, Any]

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Inside the `with` block, Keras describes the shared parts by their new names."""
        own = {name: part.__name__ for name, part in self.shared.items()}
        try:
            for name, part in self.shared.items():
                part.__name__ = name
            yield
        finally:
            for name, part in self.shared.items():
                part.__name__ = own[name]

    def explanation(self, error: str) -> str | None:
        """Explain an error about a shared name by the parts that share it; otherwise `None`."""
        for name, part in self.shared.items():
            if name in error:
                own = part.__name__
                same = [one for one in self.shared.values() if one.__name__ == own]
                others = [_place(one) for one in same if one is not part]
                other = (others or [f"Keras's {own}"])[0]
                return f"{_place(part)} and {other} have one name: give each its own"
        return None


def part_names(parts: list[Any]) -> PartNames:
    """Name each part by its own name, or by a new name if its own name is not unique.

    Args:
        parts: The classes and functions. Lambdas get no name.
    """
    named = list({id(part): part for part in parts if part.__name__ != LAMBDA}.values())
    counts = Counter(part.__name__ for part in named)
    shared = [one for one in named if counts[one.__name__] > 1 or _is_known(one.__name__)]
    # No name of Python has a blank, so the new names are unique.
    new = {f"{part.__name__} {place}": part for place, part in enumerate(shared, 1)}
    own = {part.__name__: part for part in named if part not in shared}
    return PartNames(custom_objects=own | new, shared=new)


def replaced_part(parts: list[Any]) -> str | None:
    """Describe a part whose registered name now belongs to a different object; else `None`.

    Keras would use that object in place of the part.
    """
    for part in parts:
        name = keras.saving.get_registered_name(part)
        if name != part.__name__ and keras.saving.get_registered_object(name) is not part:
            return f"{_place(part)} is registered as {name}, and so is another: register each once"
    return None


def _is_known(name: str) -> bool:
    """Whether Keras has an object of this name."""
    if name in ("accuracy", "acc", "crossentropy", "ce"):
        return True
    for kinds in _NAMED:
        with contextlib.suppress(Exception):  # a ValueError, or a class that needs arguments
            if kinds.get(name) is not None:
                return True
    return False


def _place(part: Any) -> str:
    code = getattr(part, "__code__", None)
    line = f" (line {code.co_firstlineno})" if code else ""
    return f"{part.__module__}.{part.__qualname__}{line}"


def remake(model: keras.Model, strategy: tf.distribute.Strategy) -> keras.Model:
    """Rebuild a model in a strategy's scope, with its weights, optimizer and compile settings.

    Args:
        model: A model that was made elsewhere; it does not change.
        strategy: The strategy.

    Returns:
        The new model; the same model if it has variables and was made in this strategy's scope.

    Raises:
        UserError: The model's configuration does not describe the model.
    """
    if strategy_of(model) is strategy and model.variables:
        return model
    parts = _parts_of(model)
    names, made = part_names(parts), None
    with names.used():
        description = _described(model)
    replaced = replaced_part(parts)
    if replaced is not None:
        raise _not_described(model, replaced)
    _check_lambdas(model, description, parts)
    with strategy.scope(), _policy_of(model), warnings.catch_warnings():
        # Keras warns of a model with its own `compile`, and takes the new model for compiled.
        warnings.filterwarnings("error", r"`compile\(\)` was not called as part of model loading")
        try:
            made = keras.saving.deserialize_keras_object(
                description,
                custom_objects=kdist_classes() | names.custom_objects,
                safe_mode=False,
            )
        except UserWarning as error:
            raise _not_described(model, "it has a compile() of its own") from error
        except Exception as error:  # any error of a user's own from_config
            why = names.explanation(str(error)) or first_line(error)
            raise _not_described(model, why) from error
        pairs = _pairs(model, model, made)
        if model.compiled and model.optimizer is not None and model.optimizer.built:
            if not made.optimizer.built:  # a LossScaleOptimizer must not be built twice
                made.optimizer.build(made.trainable_variables)
            pairs += _pairs(model, model.optimizer, made.optimizer)
        for own, other in pairs:
            other.assign(keras.ops.convert_to_numpy(own))
        layers_of = flatten_layers
        for own, other in zip(layers_of(model), layers_of(made), strict=True):
            _copy_adapted(own, other)
    return made


def _copy_adapted(own: Any, other: Any) -> None:
    """Copy the state of a layer outside its variables, such as an adapted vocabulary."""
    if isinstance(other, keras.layers.Normalization):
        other.finalize_state()  # its mean and variance are computed from its variables
    if not hasattr(own, "save_assets"):
        return
    if hasattr(own, "get_vocabulary"):
        if not own.get_vocabulary(include_special_tokens=False):
            return  # not adapted yet
        weights: dict[str, Any] = {}  # of words; Keras does not count them as variables
        own.save_own_variables(weights)
        other.load_own_variables(weights)
    with tempfile.TemporaryDirectory() as folder:
        own.save_assets(folder)
        other.load_assets(folder)


@contextlib.contextmanager
def _policy_of(model: keras.Model) -> Iterator[None]:
    """Inside the `with` block, Keras's dtype policy is the model's.

    By the policy `compile` decides whether to scale the loss.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(model.dtype_policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _described(model: keras.Model) -> Any:
    try:
        return _serialized(model)
    except Exception as error:  # any error of a user's own get_config
        raise _not_described(model, first_line(error)) from error


def _serialized(thing: Any) -> Any:
    with warnings.catch_warnings():
        # Keras warns of lambdas in files of unknown authors; this lambda is the caller's own.
        warnings.filterwarnings("ignore", "The object being serialized includes a `lambda`")
        return keras.saving.serialize_keras_object(thing)


def _pairs(model: keras.Model, own: Any, other: Any) -> list[tuple[Any, Any]]:
    """Pair the variables of the model or its optimizer with the variables of the rebuilt object."""
    if [one.shape for one in own.variables] == [one.shape for one in other.variables]:
        return list(zip(own.variables, other.variables, strict=True))
    counts = len(own.variables), len(other.variables)
    if own is model:
        why = "it has {} variables, and the model that they describe {}"
    else:
        why = (
            "its optimizer has {} variables, and the one that they describe {}: if you have"
            " changed trainable, compile the model again"
        )
    raise _not_described(model, why.format(*counts))


def _not_described(model: keras.Model, why: str) -> UserError:
    return UserError(
        f"the model {model.name!r} cannot be made anew in the strategy's scope from its get_config"
        f" and compile settings ({why}): pass a function that makes it, as in"
        " strategy.build(lambda: make_model())"
    )


def _parts_of(model: keras.Model) -> list[Any]:
    """Return the classes and functions of a model, without Keras's; they need no registration."""
    parts = [model, *flatten_layers(model)]
    if model.compiled:
        parts += [*optimizers_of(model), compile_arguments(model)]
    return [one for one in _classes_within(parts) if not _is_of_keras(one)]


def _check_lambdas(model: keras.Model, description: Any, parts: list[Any]) -> None:
    """Reject a lambda that uses globals, such as an imported module: its description lacks them."""
    for one in parts:
        if one.__name__ != LAMBDA or not inspect.getclosurevars(one).globals:
            continue
        if _serialized(one) in _nodes(description):
            used = ", ".join(inspect.getclosurevars(one).globals)
            why = f"a lambda in it uses {used}, as only a function that is written with def may"
            raise _not_described(model, why)


def _nodes(description: Any) -> Iterator[Any]:
    """Yield all parts of a description, each part before its own parts."""
    yield description
    if isinstance(description, dict | list | tuple):
        inner = description.values() if isinstance(description, dict) else description
        for one in inner:
            yield from _nodes(one)


def _classes_within(parts: list[Any]) -> Iterator[Any]:
    """Yield the functions and the classes with `get_config` in parts, and in their attributes.

    Examples are the function of a metric, an activation, or the class of a regularizer.
    """
    waiting, seen = list(parts), set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif inspect.isfunction(part):
            yield part
        elif hasattr(type(part), "get_config") and not isinstance(part, type):
            yield type(part)
            waiting.extend(vars(part).values())


def _is_of_keras(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or ""
    return module.partition(".")[0] in ("keras", "builtins")


def kdist_classes() -> dict[str, Any]:
    """Return kdist's classes that a model may contain, by name."""
    return {
        name: getattr(package, name)
        for package in (layers, optimizers, warm_up)
        for name in package.__all__
        if isinstance(getattr(package, name), type)
    }


def first_line(error: Exception | Warning | str) -> str:
    """Return the first line of an error, or of the cause that Keras gives in it."""
    text = str(error).rpartition("Exception encountered:")[2].strip()
    lines = text.splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")
