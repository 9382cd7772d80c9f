"""The command line; `main` handles signals, `app.py` errors."""

import sys

from ..errors import handle_failure
from ..signals import raise_signals, signal_of
from ..strategies.tensorflow_logging import prepare_process


def main() -> None:
    """Run the command line; after Ctrl-C, SIGTERM or SIGHUP print a line and exit with 128 + N.

    N is the number of the signal.
    """
    prepare_process()
    with raise_signals() as received:
        failed: BaseException
        try:
            from .app import main as run  # its imports may be interrupted, too

            run(received)
        except KeyboardInterrupt as error:
            number, failed = signal_of(error), error
        except Exception as error:
            if received.first is None:
                raise
            number, failed = received.first, error
        else:
            return
    print(f"kdist: interrupted by {number.name}", file=sys.stderr)
    handle_failure(failed, 128 + number)
    sys.exit(128 + number)
