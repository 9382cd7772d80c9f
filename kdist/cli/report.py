"""`kdist report`: parses and calls."""

from typing import Annotated

from cyclopts import Parameter


def report(
    runs: Annotated[
        list[str],
        Parameter(
            help="Run folders, sweep folders, folders of these, or CSV files with batch_size,"
            " images_per_sec and, if you like, replicas."
        ),
    ],
    /,
    *,
    output: Annotated[
        str, Parameter(help="HTML file; the charts go beside it as PNG files.")
    ] = "report.html",
    baseline: Annotated[
        str | None, Parameter(help="Run that settings are compared with; by default the first.")
    ] = None,
) -> None:
    """Show runs and sweeps in one HTML file that opens without a network."""
    from ..report.writing import write_report

    print(write_report(runs, output=output, baseline=baseline))
