"""Data sets, and the pipelines that feed them to a model."""

import lazy_loader

# The data sets need NumPy only; TensorFlow is imported when a pipeline is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
