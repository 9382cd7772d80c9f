"""The command `kdist sweep`, with a command for each kind of sweep."""

from cyclopts import App

from .accuracy import accuracy
from .scaling import scaling
from .throughput import throughput

app = App(
    name="sweep",
    help="Run experiments that consist of many runs, and state the uncertainty of their results."
    " Options of `kdist train` are passed to every run. Run the same command again to resume an"
    " interrupted sweep.",
)
for command in (throughput, accuracy, scaling):
    app.command(command)
