"""The `kdist` command: parses and calls, no logic."""

import logging
import sys

from cyclopts import App, CycloptsError, UnknownOptionError

from .. import __version__
from ..errors import TrainingError, UserError
from ..training.config import TrainConfig
from ..training.fields import field_names
from .bench import bench
from .dashboard import dashboard
from .devices import devices
from .report import report
from .sweep import app as sweep_app
from .train import train
from .tune import tune

app = App(
    name="kdist",
    help="Multi-GPU training for Keras: the same model on any number of replicas, only sooner.",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `entry.py` has an exit code for every signal
)
for command in (train, sweep_app, tune, bench, report, dashboard, devices):
    app.command(command)
app.register_install_completion_command()


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    # TensorFlow's Python logger tells every reduction at level INFO.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        sys.exit(app(sys.argv[1:], exit_on_error=False, print_error=False) or 0)
    except (UserError, CycloptsError) as error:
        print(f"kdist: error: {_in_words(error)}", file=sys.stderr)
        sys.exit(2)
    except TrainingError as error:
        print(f"kdist: error: {error}", file=sys.stderr)
        sys.exit(1)


def _in_words(error: Exception) -> str:
    words = " ".join(str(error).split())
    if not isinstance(error, UnknownOptionError):
        return words
    option = error.token.keyword or ""
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    if name not in field_names(TrainConfig):
        return words
    command = " ".join(["kdist", *(error.command_chain or ())])
    return f"{option} is not for {command}, which decides it: see {command} --help"
