"""Many runs: grids, and searches by KerasTuner, every trial on a strategy's replicas."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
