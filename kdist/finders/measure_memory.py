"""`measure_memory`: what a training takes, beside its estimate."""

from ..errors import UserError
from .batch_size import free_memory
from .functions import Function, function_name
from .memory import MemoryEstimate, estimate_model, load_batch
from .one_try import Try, TryResult
from .short_fit import batch_specs
from .try_process import run_in_process

_STEPS = 3


def measure_memory(
    build: Function, data: Function, *, batch_size: int | None = None
) -> tuple[MemoryEstimate, MemoryEstimate, tuple[TryResult, TryResult]]:
    """Train a few steps with half a batch, and with a whole one, each in a process of its own.

    Args:
        build: As for `kdist.find_batch_size`.
        data: As for `kdist.find_batch_size`.
        batch_size: Samples per step, at least 2; by default 32, or those of the data's own batches,
            which are halved, too, if they are a `tf.data.Dataset`'s.

    Returns:
        The estimates of the half and of the whole batch, and what was measured.

    Raises:
        UserError: A function fails, or the data have batches of their own that are no
            `tf.data.Dataset`.
        TrainingError: A training fails for another reason than memory.
    """
    functions, loaded, size = load_batch(build, data, batch_size)
    if size < 2:
        raise UserError("half a batch is compared with a whole one: pass a batch of 2 or more")
    batches = (size // 2, size)
    half, whole = (
        estimate_model(functions, batch_specs(loaded, batch), batch) for batch in batches
    )
    first, second = (
        run_in_process(
            Try(
                model=function_name(build),
                data=function_name(data),
                batch_size=batch,
                replicas=1,
                steps=_STEPS,
                memory=free_memory(),
            )
        )
        for batch in batches
    )
    return half, whole, (first, second)
