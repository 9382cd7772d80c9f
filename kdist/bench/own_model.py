"""A user's model as a benchmark: stock Keras and kdist on one replica and on several."""

import os

from ..errors import UserError
from ..launch.shares import visible_gpus
from ..user_model.names import data_name, split_name
from .benchmark import Benchmark, Candidate, Comparison
from .benchmarks import KERAS, ONE

DEFAULT_BATCH, DEFAULT_STEPS = 128, 20


def own_model(
    model: str,
    data: str,
    *,
    batch: int = DEFAULT_BATCH,
    steps: int = DEFAULT_STEPS,
    replicas: int | None = None,
) -> Benchmark:
    """Return the benchmark of a user's model.

    Args:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data, in the same file or as `"FILE.py:FUNCTION"`.
        batch: Samples per step over all replicas, of data that have no batches of their own.
        steps: Steps of a turn, at most.
        replicas: Of the candidates on several; by default every visible GPU, at least two.

    Raises:
        UserError: There is no such file, or `replicas` is below 2.

    Example:
        ```python
        own_model("my_model.py:build", "data", batch=64)
        ```
    """
    split_name(model)
    data_name(model, data)
    several = max(2, len(visible_gpus(os.environ))) if replicas is None else replicas
    if several < 2:
        raise UserError(
            f"received --replicas {several}, but several replicas are compared with one: pass 2 or"
            " more"
        )
    settings = {"model": model, "data": data, "batch": batch, "steps": steps}
    mirrored, more = (f"{name}, {several} replicas" for name in ("stock MirroredStrategy", "kdist"))
    return Benchmark(
        title=model,
        candidates=[
            Candidate(
                name=name,
                workload=f"{kind}_model",
                settings={**settings, "replicas": count},
                stock=kind == "stock",
            )
            for name, kind, count in (
                (KERAS, "stock", 1),
                (ONE, "kdist", 1),
                (mirrored, "stock", several),
                (more, "kdist", several),
            )
        ],
        comparisons=[
            Comparison(name=ONE, bases=(KERAS,)),
            Comparison(name=more, bases=(mirrored,)),
            Comparison(name=more, bases=(ONE,)),
            Comparison(name=ONE, bases=(KERAS,), of="memory"),
            Comparison(name=more, bases=(mirrored,), of="memory"),
        ],
    )
