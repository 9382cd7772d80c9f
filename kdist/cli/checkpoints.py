"""`kdist checkpoints`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter


def checkpoints(
    run: Annotated[
        str, Parameter(help="Folder of a run, or of a Checkpoint callback.", show_default=False)
    ],
    /,
    *,
    verify: Annotated[
        bool, Parameter(help="Check every byte by the SHA-256, not only the length.", negative=())
    ] = False,
    export: Annotated[
        str | None, Parameter(help="Save the newest model as this .keras file, without training.")
    ] = None,
) -> int:
    """List the checkpoints of a run; exit code 1 if one is damaged."""
    from ..checkpoint.listing import list_checkpoints

    return 0 if list_checkpoints(run, verify=verify, export=export) else 1
