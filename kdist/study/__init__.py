"""Studies of many runs: sweeps over a grid, and searches by oracles of KerasTuner."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
