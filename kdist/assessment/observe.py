"""Runs a program, and records how it trains its models: the process of `kdist assess`.

    python -m kdist.assessment.observe ORDER.json PROGRAM [ARGUMENT …]

PROGRAM is a script, or `-m` and a module. In this process alone, `keras.Model.fit` gets one more
callback, and a strategy without a number of replicas has as many as the order says.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..data.datasets import DATASETS
from .facts import Facts, Images

_WRONG_ARGUMENTS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be observed.

    Attributes:
        facts: File for what is found.
        replicas: Number of replicas of a strategy that names none.
        generation: Of the assessment.
        rehearse: Whether to find the learning rates alone, without training.
        fits: Number of fits that are rehearsed.
        values: What a rehearsed fit says that it has logged in each epoch.
        images: What the program trains on, if it may not be seen.
    """

    facts: str
    replicas: int
    generation: int
    rehearse: bool = False
    fits: int = 1
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    images: dict[str, Any] | None = None


def main(arguments: Sequence[str]) -> int:
    """Run the program of the command line, and return its exit code."""
    order = Order(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    return observe(order, arguments[1:])


def observe(order: Order, program: Sequence[str]) -> int:
    """Run a program, and write what is found.

    Args:
        order: What is to be observed.
        program: A script, or `-m` and a module, and its arguments.

    Returns:
        Its exit code; 1 for an exception.
    """
    import kdist  # noqa: F401 - first, as it sets TensorFlow up

    from ..distribute.tensorflow_logging import quiet_stderr

    with quiet_stderr():  # CUDA starts here
        _divide_cpu(order.replicas)
    path = Path(order.facts)
    loaded = _Loaded(Images(**order.images) if order.images else None)
    from .hooked_fit import Enough, observed_fit, rehearsed_fit
    from .observer import Observer

    observer = Observer(path, generation=order.generation, images=loaded.images)
    if order.rehearse:
        hooked = rehearsed_fit(path, fits=order.fits, values=order.values)
    else:
        hooked = observed_fit(observer)
    error, code = None, 0
    with _default_replicas(order), loaded.watched(), hooked:
        try:
            _run(program)
        except Enough:
            pass
        except SystemExit as end:
            if end.code not in (None, 0):
                error = f"it ends with {_exit_text(end.code)}"
                code = end.code if isinstance(end.code, int) else 1
        except Exception as failure:
            traceback.print_exc()
            error, code = traceback.format_exception_only(failure)[-1].strip(), 1
    if not order.rehearse:
        observer.facts(error).write(path)
    elif error is not None and not path.exists():
        Facts(error=error).write(path)
    return code


def _exit_text(code: Any) -> str:
    if code == _WRONG_ARGUMENTS:
        return f"exit code {code} (it is run without arguments)"
    return f"exit code {code}" if isinstance(code, int) else f"the message {code}"


def _run(program: Sequence[str]) -> None:
    """Run a program as Python does."""
    before = sys.argv, sys.path[:]
    try:
        if program[0] == "-m":
            sys.argv = [*program[1:]]
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [*program]
            sys.path[0] = str(Path(program[0]).resolve().parent)
            runpy.run_path(program[0], run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


def _divide_cpu(replicas: int) -> None:
    """Without GPUs, make one logical CPU for each replica, which stock strategies take."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU") or replicas == 1:
        return
    from ..distribute.devices import share_cores

    cpu = tf.config.get_visible_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    share_cores(replicas)


@contextlib.contextmanager
def _default_replicas(order: Order) -> Iterator[None]:
    """Make kdist's strategy have so many replicas where its caller names none.

    Where the rates of one replica are looked up, strategies have one whatever their caller names.
    """
    import tensorflow as tf

    from ..distribute.mirrored_strategy import MirroredStrategy

    is_alone = order.rehearse and order.replicas == 1
    of_kdist: Any = MirroredStrategy.__init__
    of_stock: Any = tf.distribute.MirroredStrategy.__init__

    @functools.wraps(of_kdist)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(of_kdist).bind(self, *args, **kwargs).arguments
        is_named = given.get("devices") is not None or given.get("replicas") is not None
        if is_alone or not is_named:
            given |= {"devices": None, "replicas": order.replicas}
        of_kdist(**given)

    @functools.wraps(of_stock)
    def stock_init(self: Any, devices: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_alone and type(self) is tf.distribute.MirroredStrategy:
            devices = [*(devices or _devices())][:1]  # also of a CPU that the program divides
        of_stock(self, devices, *args, **kwargs)

    MirroredStrategy.__init__ = init  # type: ignore[method-assign]
    tf.distribute.MirroredStrategy.__init__ = stock_init
    try:
        yield
    finally:
        MirroredStrategy.__init__ = of_kdist  # type: ignore[method-assign]
        tf.distribute.MirroredStrategy.__init__ = of_stock


def _devices() -> list[str]:
    """What a stock strategy takes where its caller names none."""
    import tensorflow as tf

    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [one.name for one in found]


class _Loaded:
    """The images that a program has loaded last, all of them where it takes a part.

    Args:
        given: What it trains on, if it may not be seen.
    """

    def __init__(self, given: Images | None) -> None:
        self._found = given
        self._source = ""

    def _keep(self, found: Images, source: str) -> None:
        before = self._found
        is_part = before is not None and (before.name, self._source) == (found.name, source)
        if before is None or not is_part:
            self._found, self._source = found, source
            return
        self._found = Images(
            name=found.name,
            training=max(before.training, found.training),
            test=max(before.test, found.test),
        )

    def images(self) -> Images | None:
        """Return them; `None` if none were seen."""
        return self._found

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at what `kdist.data` and `keras.datasets` load."""
        import keras

        from ..data.image_data import ImageData

        check: Any = ImageData.__post_init__

        def post_init(data: Any) -> None:
            check(data)
            training, test = len(data.train_images), len(data.test_images)
            self._keep(Images(name=data.name, training=training, test=test), data.source)

        def recorded(load: Any, name: str) -> Any:
            @functools.wraps(load)
            def load_data(*args: Any, **kwargs: Any) -> Any:
                train, test = load(*args, **kwargs)
                self._keep(Images(name=name, training=len(train[0]), test=len(test[0])), "Keras")
                return train, test

            return load_data

        sets = {
            one.title: getattr(keras.datasets, name)
            for name, one in DATASETS.items()
            if hasattr(keras.datasets, name)
        }
        before = {name: module.load_data for name, module in sets.items()}
        ImageData.__post_init__ = post_init  # type: ignore[assignment, method-assign]
        for name, module in sets.items():
            module.load_data = recorded(module.load_data, name)
        try:
            yield
        finally:
            ImageData.__post_init__ = check  # type: ignore[method-assign]
            for name, module in sets.items():
                module.load_data = before[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
