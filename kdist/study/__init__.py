"""Studies of many runs: sweeps over a grid, and searches by oracles of KerasTuner.

`run_trials.py` runs the trials of both in processes (`trial_process.py`), and records them in a
folder (`study_folder.py`).

Sweeps: `sweep_run.py` (the command), `experiment.py` and `sweep_kinds.py` (points and results).
Searches: `search_run.py` (the command), `search_settings.py` and `search_space.py` (its settings),
`search_trials.py` (the oracle chooses trials), `search_results.py` (scores, table, best settings).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
