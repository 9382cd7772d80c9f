"""XLA: on which devices a step can be compiled, and the messages about it."""

from collections.abc import Sequence


def xla_is_automatic(devices: Sequence[str]) -> bool:
    """Whether a step is compiled by default: on one GPU, as in Keras without a strategy."""
    return len(devices) == 1 and _are_gpus(devices)


def describe_xla(on: bool, wanted: bool | None, devices: Sequence[str]) -> str:
    """Describe in one line whether the step is compiled with XLA, and why.

    Args:
        on: Whether it is: the `jit_compile` of the compiled model.
        wanted: The user's setting; `None` if there is none.
        devices: One name per replica.
    """
    if on:
        return "XLA: on" if wanted else "XLA: on, as in Keras on one GPU; --no-xla turns it off"
    if wanted is False:
        return "XLA: off, as requested"
    if wanted or xla_is_automatic(devices):
        return "XLA: off, a layer or TensorFlow's deterministic operations do not support it"
    if _are_gpus(devices):
        return "XLA: off, as in Keras on several GPUs; --xla turns it on"
    return "XLA: off, on CPUs TensorFlow's own kernels are faster; --xla turns it on"


def _are_gpus(devices: Sequence[str]) -> bool:
    return all("GPU" in name.upper() for name in devices)
