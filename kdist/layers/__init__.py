"""Layers with equal results on any number of replicas."""

import lazy_loader

# Keras is imported when a layer is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
