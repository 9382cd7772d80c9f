"""Entry point of a chief or worker process: `python -m kdist.study.trial_process FOLDER`."""

import logging
import os
import sys

from ..errors import UserError
from ..signals import signal_of
from .folder import StudyFolder
from .search_processes import read_role, running_marker
from .search_run import run_trials
from .search_settings import read_search


def main() -> None:
    """Run the search's trials in the role given by KerasTuner's environment variables."""
    path = sys.argv[1]
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    role = read_role(os.environ)

    folder = StudyFolder(path)
    search = read_search(folder)

    def announce(line: str) -> None:
        if not role.is_chief:
            print(f"{role.tuner_id}: {line}", flush=True)

    try:
        run_trials(search, folder, role, announce=announce)
    except UserError as error:
        # Not the trial's fault: another process would end as this one.
        running_marker(folder.trials, role.tuner_id or "").unlink(missing_ok=True)
        sys.exit(f"{role.tuner_id}: {error}")
    except KeyboardInterrupt as error:  # the trial is saved
        sys.exit(128 + signal_of(error))


if __name__ == "__main__":
    main()
