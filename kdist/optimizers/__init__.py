"""Optimizers, learning rate schedules, and scaling of learning rates with the batch."""

import lazy_loader

# Keras is imported when an optimizer is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
