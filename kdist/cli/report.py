"""`kdist report`: parses and calls."""

from typing import Annotated

from cyclopts import Parameter


def report(
    runs: Annotated[
        list[str],
        Parameter(
            help="Folders of runs, sweeps and searches, folders of these, or CSV files with the"
            " columns batch_size, images_per_sec and, optionally, replicas."
        ),
    ],
    /,
    *,
    output: Annotated[
        str, Parameter(help="HTML file; the charts are put beside it as PNG files.")
    ] = "report.html",
    baseline: Annotated[
        str | None,
        Parameter(
            help="Run with whose settings the others are compared, by name or folder; by default"
            " the first."
        ),
    ] = None,
) -> None:
    """Show runs, sweeps and searches in one HTML file that opens without a network."""
    from ..report.page import write_report

    print(write_report(runs, output=output, baseline=baseline))
