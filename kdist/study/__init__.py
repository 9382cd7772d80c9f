"""Many runs: grids (`sweep_*.py`), and searches by KerasTuner (`search_*.py`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
