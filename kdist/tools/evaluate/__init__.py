"""`kdist evaluate`: loss and metrics of a run's saved models, on exactly all validation data."""

import lazy_loader

# Mistakes are reported before TensorFlow is imported.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
