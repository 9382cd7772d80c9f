"""`TrainPlan`: batch sizes and learning rate of a run on a number of replicas."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UserError
from ..optimizers.scaling import scale_learning_rate
from .config import TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """Batch sizes and learning rate of a run.

    Attributes:
        replicas: Number of replicas.
        global_batch: Training images per step, over all replicas.
        validation_batch: Validation images per step, over all replicas.
        learning_rate: Learning rate for the global batch.
    """

    replicas: int
    global_batch: int
    validation_batch: int
    learning_rate: float

    @property
    def batch_per_replica(self) -> int:
        """Training images per step on the replica that has most."""
        return -(-self.global_batch // self.replicas)

    def steps_per_epoch(self, images: int) -> int:
        """Return the steps per epoch, including a smaller last batch.

        Args:
            images: Number of training images.

        Example:
            >>> make_plan(TrainConfig(batch_size=16), replicas=2).steps_per_epoch(97)
            4
        """
        return -(-images // self.global_batch)


def make_plan(config: TrainConfig, *, replicas: int) -> TrainPlan:
    """Compute a run's batch sizes and learning rate.

    Args:
        config: The settings.
        replicas: Number of replicas.

    Example:
        >>> make_plan(TrainConfig(base_lr=0.01, batch_size=16), replicas=2)
        TrainPlan(replicas=2, global_batch=32, validation_batch=64, learning_rate=0.02)
    """
    return TrainPlan(
        replicas=replicas,
        global_batch=replicas * config.batch_size,
        validation_batch=replicas * config.val_batch_size,
        learning_rate=scale_learning_rate(
            config.base_lr, replicas=replicas, rule=config.lr_rule, optimizer=config.optimizer
        ),
    )


def resumed_plan(values: Mapping[str, Any], *, replicas: int) -> TrainPlan:
    """Return the plan of a run that is resumed: its batches and learning rate.

    Args:
        values: A plan as plain data.
        replicas: Number of replicas from now on.

    Raises:
        UserError: The values are no plan.

    Example:
        >>> plan = make_plan(TrainConfig(base_lr=0.01, batch_size=16), replicas=2)
        >>> resumed_plan(dataclasses.asdict(plan), replicas=3)
        TrainPlan(replicas=3, global_batch=32, validation_batch=64, learning_rate=0.02)
    """
    try:
        return TrainPlan(**{**values, "replicas": replicas})
    except TypeError as error:
        raise UserError(
            f"the run's plan has {', '.join(sorted(values)) or 'nothing'}: put back the plan.json"
            " that the run has written"
        ) from error
