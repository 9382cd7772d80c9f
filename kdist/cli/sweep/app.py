"""The command `kdist sweep`, with a command for each kind of sweep."""

from cyclopts import App

from .accuracy import accuracy
from .scaling import scaling
from .throughput import throughput

app = App(
    name="sweep",
    help="Run experiments of many runs, with the uncertainty of their results."
    " Options of `kdist train` are passed to every run. An interrupted sweep resumes when the same"
    " command is run again.",
)
for command in (throughput, accuracy, scaling):
    app.command(command)
