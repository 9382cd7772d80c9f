"""`kdist train`: a run, from its settings to its result.

Begin with `run.py`; the settings are in `settings.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
