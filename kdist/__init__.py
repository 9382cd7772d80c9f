"""Multi-GPU training for Keras: the same model on any number of replicas, only sooner."""

import lazy_loader

__version__ = "0.1.0"

# TensorFlow takes seconds to import: a name of `__init__.pyi` is loaded when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
