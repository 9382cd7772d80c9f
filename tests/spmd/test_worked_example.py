"""The worked example of docs/design/one-program.md: its table is the plan that kdist makes."""

from pathlib import Path

import kdist
import tensorflow as tf
from kdist.spmd.redistribute import Keep
from rule_harness import recorded_plans

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "one-program.md"
HEADER = "| operation | its inputs are | so | its result is | stage |"


def plan_step(step, *batches):
    """Return the plan of a step for two replicas, with a kernel of shape (3, 1)."""
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        kernel = tf.Variable(tf.zeros((3, 1)), name="kernel")
    data = tf.data.Dataset.from_tensor_slices(batches).batch(4)
    with recorded_plans() as plans:
        run = tf.function(lambda batch: strategy.run(step, (*batch, kernel)))
        for batch in strategy.experimental_distribute_dataset(data):
            run(batch)
    return plans[-1]


def dense_step(x, labels, kernel):
    """Train a dense layer by one step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(x @ kernel - labels))
    kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    return loss


def described(planned):
    """Return the row of a table that describes a planned operation."""
    conversions = [
        type(each).__name__ for each in planned.conversions if not isinstance(each, Keep)
    ]
    is_gradient = planned.op.name.startswith("gradient_tape/")
    cells = [
        f"`{planned.op.type}`{', gradient' if is_gradient else ''}",
        ", ".join(f"`{placement}`" for placement in planned.placements),
        ", ".join(f"`{name}`" for name in conversions) or "as they are",
        ", ".join(f"`{placement}`" for placement in planned.decision.output_placements) or "none",
        str(planned.stage),
    ]
    return f"| {' | '.join(cells)} |"


def test_the_page_shows_the_plan_of_a_dense_layer():
    plan = plan_step(dense_step, tf.ones((8, 3)), tf.ones((8, 1)))
    shown = [op for op in plan.operations if op.op.type not in ("Const", "NoOp", "Identity")]
    table = "\n".join([HEADER, "| --- | --- | --- | --- | --- |", *map(described, shown)])
    exchanged = [exchange.tensor.op.type for exchange in plan.exchanges.values()]

    assert table in PAGE.read_text(), f"the table of {PAGE.name} is now:\n\n{table}"
    assert exchanged == ["MatMul", "Sum"]  # the gradient, then the loss
