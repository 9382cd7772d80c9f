"""`kdist dashboard`: make a W&B workspace or report of a project's runs."""

import dataclasses
from typing import Any

from ..errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines:
    """A line chart of values by epoch, one line per run.

    Attributes:
        title: The panel's title.
        values: Names of values in `logs`.
    """

    title: str
    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """A scatter plot of a value against a setting, one point per run.

    Attributes:
        title: The panel's title.
        setting: The setting on the x axis.
        value: Name of a value in `logs`; its last value is on the y axis.
    """

    title: str
    setting: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """Parallel coordinates of settings and the objective of a search, one line per trial.

    Attributes:
        title: The panel's title.
        settings: The settings.
        result: Name of the objective in the run's summary.
    """

    title: str
    settings: tuple[str, ...]
    result: str


Panel = Lines | Points | Trials

SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Learning": (
        Lines(title="Accuracy", values=("accuracy", "val_accuracy")),
        Lines(title="Loss", values=("loss", "val_loss")),
        Lines(title="Learning rate", values=("learning_rate",)),
    ),
    "Speed": (
        Lines(title="Images per second", values=("images_per_sec",)),
        Lines(title="Images per second and replica", values=("images_per_sec_per_replica",)),
        Lines(title="Seconds per step", values=("seconds_per_step",)),
        Points(title="Images per second by replicas", setting="replicas", value="images_per_sec"),
        Points(
            title="Images per second by global batch",
            setting="global_batch",
            value="images_per_sec",
        ),
    ),
    "Batch": (
        Lines(title="Gradient noise scale, images", values=("gradient_noise_scale",)),
        Lines(
            title="Batch norm: error of moving statistics",
            values=("batch_norm_gap", "batch_norm_replica_gap"),
        ),
        Lines(
            title="Loss in training and inference mode",
            values=("loss_in_training_mode", "loss_in_inference_mode"),
        ),
        Points(title="Accuracy by global batch", setting="global_batch", value="val_accuracy"),
    ),
    "Search": (
        Trials(
            title="Trials",
            settings=("base_lr", "batch_size", "optimizer", "dropout", "wd"),
            result="objective",
        ),
    ),
}


SECONDS_TO_REACH_WANDB = 15


def dashboard(*, project: str, entity: str | None = None, report: bool = False) -> str:
    """Make a new W&B workspace, or a report, that shows a project's runs.

    Args:
        project: The W&B project.
        entity: The user or team that owns it; by default the account's default entity.
        report: Make a report instead of a workspace.

    Returns:
        Its URL.

    Raises:
        UserError: There is no account, W&B is set to be offline, or it cannot be reached.
    """
    import wandb

    from .wandb_account import wandb_mode

    if wandb_mode() in ("offline", "disabled"):
        raise UserError(
            "a dashboard is stored on W&B's server, and there is no account to make it with: run"
            " `wandb login` or set WANDB_API_KEY, leave WANDB_MODE unset, and upload offline runs"
            " with `wandb sync`"
        )
    try:
        owner = entity or wandb.Api(timeout=SECONDS_TO_REACH_WANDB).default_entity
        made = (report_of if report else workspace_of)(entity=owner, project=project)
        return str(made.save().url)
    except Exception as error:  # of the network, the server or the account
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"W&B did not make the dashboard: {problem}; check that the network reaches W&B and the"
            f" account may write to {entity or 'its entity'}/{project}"
        ) from error


def workspace_of(*, entity: str, project: str) -> Any:
    """Return the workspace, a `wandb_workspaces.workspaces.Workspace`, not yet saved."""
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name="kdist",
        sections=[
            ws.Section(name=name, panels=[_drawn(panel) for panel in panels], is_open=True)
            for name, panels in SECTIONS.items()
        ],
    )


def report_of(*, entity: str, project: str) -> Any:
    """Return the report, a `wandb_workspaces.reports.v2.Report`, not yet saved."""
    import wandb_workspaces.reports.v2 as wr

    blocks: list[Any] = []
    for name, panels in SECTIONS.items():
        runs = wr.Runset(entity=entity, project=project)
        grid = wr.PanelGrid(runsets=[runs], panels=[_drawn(panel) for panel in panels])
        blocks += [wr.H2(text=name), grid]
    return wr.Report(entity=entity, project=project, title="kdist", blocks=blocks)


def _drawn(panel: Panel) -> Any:
    import wandb_workspaces.reports.v2 as wr

    if isinstance(panel, Lines):
        lines = [f"epoch/{value}" for value in panel.values]
        return wr.LinePlot(title=panel.title, x="epoch/epoch", y=lines)
    if isinstance(panel, Points):
        return wr.ScatterPlot(
            title=panel.title,
            x=wr.Config(panel.setting),
            y=wr.SummaryMetric(f"epoch/{panel.value}"),
        )
    axes = [*map(wr.Config, panel.settings), wr.SummaryMetric(panel.result)]
    columns = [wr.ParallelCoordinatesPlotColumn(metric=axis) for axis in axes]
    return wr.ParallelCoordinatesPlot(title=panel.title, columns=columns)
