"""`StepMeasurement`: what `TrainingTelemetry` measured in a step, by name."""

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from ..distribute.telemetry import RawMeasurement, StepTelemetry
from ..layers.histogram import Histogram


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorms:
    """Norms of a layer's trainable weights, taken together as one vector.

    Attributes:
        weight_norm: Euclidean norm of the weights before the step's update.
        gradient_norm: Norm of the global batch's gradient.
        update_norm: Norm of the update, which is the difference between the weights after and
            before it.
    """

    weight_norm: float
    gradient_norm: float
    update_norm: float

    @property
    def update_ratio(self) -> float:
        """|update| / |weights|; NaN if all weights are 0."""
        return self.update_norm / self.weight_norm if self.weight_norm else math.nan


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMeasurement:
    """What was measured in one training step.

    Attributes:
        step: The step, from 1, over all epochs.
        weights: Histograms by weight, such as `conv1/kernel`, before the step's update.
        gradients: The same for the global batch's gradients.
        outputs: Histograms by layer, in the order in which the step calls the layers; all calls of
            a layer are combined.
        layers: Norms by layer.
        total: The norms of the whole model.
    """

    step: int
    weights: Mapping[str, Histogram]
    gradients: Mapping[str, Histogram]
    outputs: Mapping[str, Histogram]
    layers: Mapping[str, LayerNorms]
    total: LayerNorms

    def __str__(self) -> str:
        ratios = {
            name: norms.update_ratio
            for name, norms in self.layers.items()
            if not math.isnan(norms.update_ratio)
        }
        text = (
            f"step {self.step}: gradient norm {self.total.gradient_norm:.3g}, update ratio"
            f" {self.total.update_ratio:.2g}"
        )
        if len(ratios) > 1:
            least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
            text += f", from {ratios[least]:.2g} ({least}) to {ratios[most]:.2g} ({most})"
        return text


class LayerNames:
    """Names what `StepTelemetry` has in rows.

    Args:
        telemetry: For its weights and layers. Of two that have the same name, the second gets `_1`.
    """

    def __init__(self, telemetry: StepTelemetry) -> None:
        self._telemetry = telemetry
        prefix = f"{telemetry.model.name}/"
        self._layers = _unique(
            (layer.path or layer.name).removeprefix(prefix) for layer in telemetry.layers
        )
        by_id = {
            id(layer): name for layer, name in zip(telemetry.layers, self._layers, strict=True)
        }
        owners = [layer for layer, _ in telemetry.weights]
        self._owners = [by_id.get(id(layer), layer.name) for layer in owners]
        self._weights = _unique(
            f"{owner}/{weight.name}"
            for owner, (_, weight) in zip(self._owners, telemetry.weights, strict=True)
        )

    def measurement(self, raw: RawMeasurement) -> StepMeasurement:
        """Return a measurement by names."""

        def by_weight(counts: np.ndarray) -> dict[str, Histogram]:
            histograms = map(Histogram.from_codes, counts)
            return dict(zip(self._weights, histograms, strict=True))

        squares = {owner: np.zeros(3) for owner in self._owners}
        for owner, row in zip(self._owners, raw.squares, strict=True):
            squares[owner] = squares[owner] + row
        return StepMeasurement(
            step=raw.step,
            weights=by_weight(raw.weights),
            gradients=by_weight(raw.gradients),
            outputs={
                self._layers[row]: Histogram.from_codes(raw.outputs[row])
                for row in self._telemetry.called
            },
            layers={owner: _norms(row) for owner, row in squares.items()},
            total=_norms(raw.squares.sum(0)),
        )


def _norms(squares: np.ndarray) -> LayerNorms:
    weight, gradient, update = map(float, np.sqrt(squares))
    return LayerNorms(weight_norm=weight, gradient_norm=gradient, update_norm=update)


def _unique(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        number, one = 0, name
        while one in taken:
            number += 1
            one = f"{name}_{number}"
        taken.add(one)
        found.append(one)
    return found
