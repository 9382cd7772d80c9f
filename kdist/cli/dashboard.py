"""`kdist dashboard`: parses and calls."""

from typing import Annotated

from cyclopts import Parameter


def dashboard(
    *,
    project: Annotated[str, Parameter(help="W&B project whose runs it shows.")] = "kdist",
    entity: Annotated[str | None, Parameter(help="User or team; by default the account's.")] = None,
    report: Annotated[
        bool, Parameter(help="Create a report instead of a workspace.", negative=())
    ] = False,
) -> None:
    """Create a W&B workspace for runs that were tracked by W&B."""
    from ..tracking.dashboard import dashboard as make

    print(make(project=project, entity=entity, report=report))
