"""Commands with few options: each command calls the function that does the work."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import UserError
from ..tools.check.check_options import CheckOptions
from ..tools.evaluate.evaluate_options import EvaluateOptions
from ..training.config import TrainConfig
from ..versions import require_extra
from .options import add_options, given_options, make_options_class, parse_integer

if TYPE_CHECKING:
    from ..study.run_trials import Outcome


@add_options(options=make_options_class(CheckOptions))
def check(
    model: Annotated[
        str | None, Parameter(help="FILE.py:FUNCTION; the function returns a compiled model.")
    ] = None,
    /,
    *,
    data: Annotated[
        str, Parameter(help="Function in the same file that returns the data, or FILE.py:FUNCTION.")
    ] = "data",
    devices: Annotated[
        bool, Parameter(negative="", help="Train built-in models on this machine's devices.")
    ] = False,
    run: Annotated[
        bool, Parameter(negative="", help="Train on one replica and on several, and compare.")
    ] = False,
    options: Any = None,
) -> int:
    """Show the divided part of your model's training step; with --run, check its results, too."""
    check_options = CheckOptions(**given_options(options))
    if (model is None) != devices:
        raise UserError("kdist check needs a model (FILE.py:FUNCTION) or --devices, not both")
    from ..tools.check.run_check_command import check_devices, check_file

    if model is None:
        replicas = check_options.replicas if "replicas" in given_options(options) else None
        return 0 if check_devices(replicas) else 1
    return 0 if check_file(model, data, check_options, run=run) else 1


@add_options(options=make_options_class(EvaluateOptions))
def evaluate(
    folder: Annotated[
        str,
        Parameter(
            help="Folder of a run, or its remote address, such as s3://bucket/run.",
            show_default=False,
        ),
    ],
    /,
    *,
    options: Any = None,
) -> None:
    """Print loss and metrics of a run's saved models, on each validation sample exactly once."""
    evaluate_options = EvaluateOptions(**given_options(options))
    from ..tools.evaluate.evaluate_run import evaluate as evaluate_run

    evaluate_run(folder, evaluate_options)


def report(
    runs: Annotated[
        list[str],
        Parameter(
            help="Folders of runs, sweeps or searches, or folders that contain such folders."
        ),
    ],
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(help="HTML file; by default report.html in the folder that contains all RUNS."),
    ] = None,
) -> None:
    """Show runs, sweeps and searches in one HTML file that opens without a network."""
    from ..report.write_report import write_report

    page, skipped = write_report(runs, output=output)
    for path, reason in skipped:
        print(f"Skipped: {path}: {reason}".encode(errors="replace").decode())
    print(f"Report: {page}")


def end_study(outcome: "Outcome") -> int:
    """Write the report of a sweep or search into its folder, and return its exit code."""
    if outcome.rows and not outcome.stop_reason:
        report([str(outcome.folder)])
    return outcome.exit_code


def devices(
    *,
    replicas: Annotated[
        int | None,
        Parameter(
            help="As in kdist train; by default every GPU, or else the CPU.",
            converter=parse_integer,
        ),
    ] = None,
) -> None:
    """List the devices that a strategy would use."""
    TrainConfig(replicas=replicas)  # rejects a wrong number before TensorFlow is imported
    from ..strategies.hardware import device_names
    from ..strategies.mirrored_strategy import MirroredStrategy

    strategy = MirroredStrategy(replicas=replicas)
    for device, name in zip(strategy.devices, device_names(strategy.devices), strict=True):
        print(f"{device}  {name}")


def doctor(
    *,
    replicas: Annotated[
        int | None,
        Parameter(
            help="Replicas of the all-reduce; by default every GPU, or else two logical CPUs.",
            converter=parse_integer,
        ),
    ] = None,
) -> int:
    """Check whether this machine is ready for training, and explain how to fix problems."""
    TrainConfig(replicas=replicas)  # rejects a wrong number before TensorFlow is imported
    from ..tools.doctor.examine import examine_machine, print_findings

    findings = examine_machine(replicas=replicas)
    print_findings(findings)
    return int(any(finding.state == "broken" for finding in findings))


def dashboard(
    *,
    project: Annotated[str, Parameter(help="W&B project with the runs to show.")] = "kdist",
    entity: Annotated[
        str | None, Parameter(help="W&B user or team; by default the account's default entity.")
    ] = None,
) -> None:
    """Create a W&B workspace for runs that were tracked by W&B."""
    require_extra("dashboard")
    from ..tracking.dashboard import dashboard as create_dashboard

    print(create_dashboard(project=project, entity=entity))
