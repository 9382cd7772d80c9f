"""Optimizers for large batches, which Keras does not ship."""

import lazy_loader

# Keras is imported when an optimizer is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
