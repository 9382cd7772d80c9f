"""`kdist launch`: the options, and the program that follows the options."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import UserError
from ..fields import fields_of
from ..versions import require_extra
from ..workers.launch_options import AUTO, LaunchOptions
from .options import add_options, given_options, make_options_class

_FLAG_NAMES = [field.name for field in fields_of(LaunchOptions) if field.kind is bool]
# Options that take no value.
_FLAGS = {"--help", "-h"}.union(*({f"--{name}", f"--no-{name}"} for name in _FLAG_NAMES))


@add_options(options=make_options_class(LaunchOptions, without={"workers"}))
def launch(
    *program: Annotated[str, Parameter(help="A script and its arguments, or -m and a module.")],
    workers: Annotated[
        str, Parameter(help="Number of workers; auto: a worker per GPU, one worker without GPUs.")
    ] = AUTO,
    options: Any = None,
) -> int:
    """Run a program on several workers, of this machine or of a Ray cluster."""
    launch_options = LaunchOptions(workers=_parse_workers(workers), **given_options(options))
    from ..workers import launcher

    command_line = launcher.check_program(program)
    if launch_options.ray:
        require_extra("ray")
        from ..workers.ray_launcher import launch_on_ray

        return launch_on_ray(command_line, launch_options)
    return launcher.launch(command_line, launch_options)


def separate_program_arguments(arguments: Sequence[str]) -> list[str]:
    """Put `--` before the program of `kdist launch`, so that its options are not options of launch.

    Args:
        arguments: Arguments of `kdist`.
    """
    if not arguments or arguments[0] != "launch":
        return list(arguments)
    index = 1
    while index < len(arguments) and arguments[index].startswith("--"):
        option = arguments[index]
        if option == "--":
            return list(arguments)
        index += 1 if "=" in option or option in _FLAGS else 2
    if arguments[index : index + 1] in ([], ["-h"]):
        return list(arguments)
    return [*arguments[:index], "--", *arguments[index:]]


def _parse_workers(workers: str) -> int | None:
    if workers == AUTO:
        return None
    try:
        return int(workers)
    except ValueError:
        raise UserError(f"received --workers {workers}: pass a number, or auto") from None
