"""`kdist dashboard`: make a W&B workspace of a project's runs."""

import os
from typing import Any

from ..errors import UserError, first_message_line

SECONDS_TO_REACH_WANDB = 15


def dashboard(*, project: str, entity: str | None = None) -> str:
    """Make a new W&B workspace that shows a project's runs, and return its URL.

    Without an `entity`, the project is the account's default entity's.
    """
    import wandb

    from .wandb_tracker import wandb_mode

    if wandb_mode() in ("offline", "disabled"):
        requested = os.environ.get("WANDB_MODE", "")
        problem = "there is no W&B account: run `wandb login`, or set WANDB_API_KEY"
        if requested in ("offline", "dryrun", "disabled"):
            problem = f"WANDB_MODE is {requested}: unset WANDB_MODE"
        raise UserError(
            f"a dashboard is stored on W&B's server, but {problem}; upload offline runs with"
            " `wandb sync`"
        )
    try:
        owner = entity or wandb.Api(timeout=SECONDS_TO_REACH_WANDB).default_entity
        return str(make_workspace(entity=owner, project=project).save().url)
    except Exception as error:  # an error of the network, the server or the account
        raise UserError(
            f"W&B did not make the dashboard: {first_message_line(error)}; check that the network"
            " reaches W&B, and that the account is allowed to write to"
            f" {entity or 'its entity'}/{project}"
        ) from error


def make_workspace(*, entity: str, project: str) -> Any:
    """Return the workspace, a `wandb_workspaces.workspaces.Workspace`, not yet saved."""
    import wandb_workspaces.workspaces as ws

    return ws.Workspace(
        entity=entity,
        project=project,
        name="kdist",
        sections=[
            ws.Section(name=name, panels=panels, is_open=True)
            for name, panels in _make_sections().items()
        ],
    )


def _make_sections() -> dict[str, list[Any]]:
    """Return the panels by section: a line or a point for each run, and a line for each trial."""
    import wandb_workspaces.reports.v2 as wr

    def plot_lines(title: str, *values: str) -> Any:
        return wr.LinePlot(title=title, x="epoch/epoch", y=[f"epoch/{value}" for value in values])

    def plot_points(title: str, *, setting: str, value: str) -> Any:
        y = wr.SummaryMetric(f"epoch/{value}")
        return wr.ScatterPlot(title=title, x=wr.Config(setting), y=y)

    def plot_trials(title: str, *settings: str) -> Any:
        axes = [*map(wr.Config, settings), wr.SummaryMetric("best_val_accuracy")]
        columns = [wr.ParallelCoordinatesPlotColumn(metric=axis) for axis in axes]
        return wr.ParallelCoordinatesPlot(title=title, columns=columns)

    speed, batch = "images_per_sec", "global_batch"
    return {
        "Learning": [
            plot_lines("Accuracy", "accuracy", "val_accuracy"),
            plot_lines("Loss", "loss", "val_loss"),
            plot_lines("Learning rate", "learning_rate"),
        ],
        "Speed": [
            plot_lines("Images per second", speed),
            plot_points("Images per second by replicas", setting="replicas", value=speed),
            plot_points("Images per second by global batch", setting=batch, value=speed),
        ],
        "Batch size and batch norm": [
            plot_lines(
                "Batch norm: gap of moving statistics",
                "batch_norm_gap",
                "batch_norm_replica_gap",
            ),
            plot_lines(
                "Loss in training and inference mode",
                "loss_in_training_mode",
                "loss_in_inference_mode",
            ),
            plot_points("Accuracy by global batch", setting=batch, value="val_accuracy"),
        ],
        "Search": [plot_trials("Trials", "base_lr", "batch_size", "optimizer", "dropout", "wd")],
    }
