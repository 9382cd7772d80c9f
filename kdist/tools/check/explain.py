"""`explain`: report the divided and the repeated work of a model's training step."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from ..._upstream.fit import build_for_step
from ..._upstream.models import ModelStep, optimizers_of, strategy_of
from ..._upstream.seeds import keep_seeds
from ...errors import UserError, cut_line
from ...spmd.divided_variables import DividedVariable, choose_division
from ...spmd.explanation import Explanation
from ...strategies.exact_strategy import ExactStrategy
from ...strategies.load_model import first_line
from .check_batches import convert_like_fit, count_rows

_MOST_PLACES = 8
_LINE_WIDTH = 74


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelExplanation:
    """The result of `kdist.explain`; `print` shows it on one screen.

    Attributes:
        model: The model's name.
        devices: Devices of the model's replicas.
        step: Division of the training step: `divided_share`, `work` in floating-point operations
            (`divided`, `whole`, `repeated`), `places` that need the rows of all replicas, `rounds`
            of exchanges with the bytes `summed` and `gathered`.
        weights: Bytes of the weights on each replica.
        optimizer: Bytes of the optimizer's state on each replica.
        divided: Bytes of the weights and of the optimizer's state if they are divided
            (`shard_weights`, `shard_optimizer`), on the replica with the largest parts.
    """

    model: str
    devices: tuple[str, ...]
    step: Explanation
    weights: int
    optimizer: int
    divided: tuple[int, int]

    def __str__(self) -> str:
        step, work = self.step, self.step.work
        rounds = f"{step.rounds} round{'s' * (step.rounds != 1)} of exchanges"
        exchanged = f"{_format_bytes(step.summed)} summed"
        exchanged += f", {_format_bytes(step.gathered)} gathered" * bool(step.gathered)
        repeated = work.repeated / work.total if work.total else 0.0
        exchanged += f", {_format_bytes(step.weights_gathered)} of weights" * bool(
            step.weights_gathered
        )
        lines = [
            f"{self.model} on {len(self.devices)} replicas ({', '.join(self.devices)}),"
            f" a batch of {step.rows} rows:",
            f"{_format_percent(step.divided_share)} of the work on the batch is divided; {rounds}"
            f" ({exchanged}).",
            "",
            f"  work       {_format_scaled(work.total, 'FLOP')} a step; every replica repeats"
            f" {_format_percent(repeated)} (updates of the weights,",
            f"             independent of the batch); at most {step.most_speedup:.2f} times as fast"
            " as one replica",
            "  memory     on each replica: weights"
            f" {self._with_divided(self.weights, 0, 'shard_weights')},",
            f"             optimizer {self._with_divided(self.optimizer, 1, 'shard_optimizer')}",
        ]
        if not step.places:
            return "\n".join(lines)
        lines += ["", "  Every replica needs all rows here:", "   of work  gathered"]
        for place in step.places[:_MOST_PLACES]:
            share = _format_percent(place.flops / work.total) if place.flops else "-"
            gathered = _format_bytes(place.gathered) if place.gathered else "-"
            types = ", ".join(list(place.types)[:3]) + ", …" * (len(place.types) > 3)
            lines += [
                f"  {share:>8}  {gathered:>8}  {cut_line(place.name, _LINE_WIDTH)}",
                f"{'':22}{types}",
            ]
        more = step.places[_MOST_PLACES:]
        if more:
            share = _format_percent(sum(place.flops for place in more) / work.total)
            lines.append(f"  {share:>8}            in {len(more)} more places")
        return "\n".join(lines)

    def _with_divided(self, size: int, index: int, option: str) -> str:
        """Return the bytes of variables, and their bytes once they are divided."""
        divided = f" ({_format_bytes(self.divided[index])} with {option})"
        return _format_bytes(size) + divided * (self.divided[index] < size)


def explain(model: keras.Model, batch: Any) -> ModelExplanation:
    """Report the work of a model's training step that is divided over replicas, and the rest.

    The step is traced, but not run: weights, optimizer and metrics keep their values.

    Args:
        model: A compiled model made under a strategy of kdist with several replicas.
        batch: A global batch as `fit` passes it to the step: arrays `x`, `(x, y)` or `(x, y,
            sample_weight)`, each an array or a structure of arrays, with the rows along the first
            axis; or a `tf.data.Dataset`: the number of rows of its first batch, and its element
            shapes, are used.

    Returns:
        The divided share of the work; the lines of the program, or the layers, that need all rows;
        exchanges, and the bytes of weights and of the optimizer's state. Work is counted in
        floating-point operations, so shares of the work are not shares of the time.

    Raises:
        UserError: The model is not compiled, has a single replica, or does not take the batch.

    Examples:
        ```python
        strategy = kdist.MirroredStrategy(replicas=2)
        model = strategy.build(make_model)
        print(kdist.explain(model, (x[:64], y[:64])))
        ```
    """
    strategy = _strategy_of(model)
    dataset, rows = _batch_dataset(batch)
    strategy.explained_rows = rows
    try:
        with keep_seeds():
            _trace_step(model, strategy, dataset)
    except Exception as error:  # a step or layer that does not fit the batch raises any type
        raise UserError(
            f"the step of {model.name!r} does not take this batch ({first_line(error)}):"
            " pass a batch as `fit` receives it, such as (x, y)"
        ) from error
    finally:
        strategy.explained_rows = None
    state = [variable for optimizer in optimizers_of(model) for variable in optimizer.variables]
    return ModelExplanation(
        model=model.name,
        devices=strategy.devices,
        step=strategy.explanation,
        weights=_bytes_on_device(model.weights, strategy),
        optimizer=_bytes_on_device(state, strategy),
        divided=(
            _bytes_on_device(model.weights, strategy, all_divided=True),
            _bytes_on_device(state, strategy, all_divided=True),
        ),
    )


def _strategy_of(model: keras.Model) -> ExactStrategy:
    if not isinstance(model, keras.Model) or not model.compiled:
        found, remedy = type(model).__name__, "pass a model made under a strategy of kdist"
        if isinstance(model, keras.Model):
            found, remedy = f"{found} that is not compiled", "call model.compile(...)"
        raise UserError(f"explain takes a compiled keras.Model, received {found}: {remedy}")
    strategy = strategy_of(model)
    if not isinstance(strategy, ExactStrategy) or strategy.num_replicas_in_sync == 1:
        count = "one replica" if isinstance(strategy, ExactStrategy) else "no strategy of kdist"
        raise UserError(
            f"the model was created under {count}, so nothing is divided: create the model by"
            " kdist.MirroredStrategy(replicas=2).build(...)"
        )
    return strategy


def _batch_dataset(batch: Any) -> tuple[tf.data.Dataset, int]:
    """Return the batch as a dataset with an unknown number of rows, and the number of rows."""
    if isinstance(batch, tf.data.Dataset):
        return batch, count_rows(next(iter(batch.take(1))))
    batch = keras.tree.lists_to_tuples(batch)
    if isinstance(batch, tuple):
        batch = tuple(part for part in batch if part is not None)
        batch = batch[0] if len(batch) == 1 else batch  # as `fit` passes it
    leaves = keras.tree.flatten(batch)
    if not leaves or any(len(getattr(leaf, "shape", ())) == 0 for leaf in leaves):
        raise UserError(
            "batch has to be arrays with the rows along the first axis, such as (x[:64], y[:64]),"
            f" received {type(batch).__name__}"
        )
    rows = count_rows(batch)
    batch = keras.tree.map_structure(convert_like_fit, batch)
    return tf.data.Dataset.from_tensor_slices(batch).batch(rows), rows


def _trace_step(model: keras.Model, strategy: Any, dataset: tf.data.Dataset) -> None:
    build_for_step(model, dataset.element_spec)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    train_step = ModelStep(model, model.train_step)

    def step(iterator: Any) -> Any:
        return strategy.run(train_step, args=(next(iterator),))

    tf.function(step, autograph=False).get_concrete_function(iterator)


def _variable_size(variable: keras.Variable) -> int:
    return int(tf.as_dtype(variable.dtype).size) * math.prod(map(int, variable.shape))


def _bytes_on_device(
    variables: Iterable[keras.Variable], strategy: ExactStrategy, *, all_divided: bool = False
) -> int:
    """Return the bytes of variables on the device with the largest parts.

    With `all_divided`, all variables count as if they were divided.
    """
    extended = strategy.extended
    parts_per_device = len(extended.shard_devices) // len(extended.worker_devices)
    total = 0
    for variable in variables:
        size, division = _variable_size(variable), None
        if all_divided:
            division = choose_division(variable.shape, extended.parts)
        elif isinstance(variable.value, DividedVariable):
            division = variable.value.division
        if division is not None:
            size = size * parts_per_device * max(division.sizes) // sum(division.sizes)
        total += size
    return total


def _format_percent(share: float) -> str:
    """Format a share in percent; a share between 0 and 1 is never rounded to 0 or 100."""
    percent = 100 * share
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "< 0.1 %" if percent < 1 else "> 99.9 %"
    return f"{percent:.3g} %"


def _format_bytes(count: float) -> str:
    return _format_scaled(count, "B")


def _format_scaled(count: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{count:.3g} T{unit}"
