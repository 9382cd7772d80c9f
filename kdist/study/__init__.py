"""Studies of many runs: sweeps over a grid, and searches by oracles of KerasTuner.

`sweep_run.py` and `search_run.py` are the commands; `run_trials.py` runs the trials of both in
processes (`trial_process.py`) and records them in a folder (`study_folder.py`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
