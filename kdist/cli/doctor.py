"""`kdist doctor`: parses and calls."""

from typing import Annotated

from cyclopts import Parameter

from ..arguments import path_text
from ..training.config import TrainConfig
from .integers import parse_integer


def doctor(
    *,
    replicas: Annotated[
        int | None,
        Parameter(
            help="For the all-reduce; by default every GPU, or else two logical CPUs.",
            converter=parse_integer,
        ),
    ] = None,
    run_dir: Annotated[str, Parameter(help="Folder of your runs; its disk is examined.")] = "runs",
    json: Annotated[
        bool,
        Parameter(help="Print JSON for a bug report, without user names.", negative=()),
    ] = False,
) -> int:
    """Say whether this machine is ready for training, and how to fix what is not."""
    TrainConfig(replicas=replicas)  # refuses a wrong number
    path_text("--run-dir", run_dir)
    from rich.console import Console

    from ..doctor.finding import as_json, screen_lines
    from ..doctor.run import examine_machine

    findings = examine_machine(replicas=replicas, run_dir=run_dir)
    if json:
        print(as_json(findings))
    else:
        screen = Console()
        width = screen.width if screen.is_terminal else 100
        for line in screen_lines(findings, width=width, colour=screen.is_terminal):
            print(line)
    return int(any(one.state == "broken" for one in findings))
