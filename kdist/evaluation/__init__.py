"""`kdist evaluate`: the accuracy and the loss of saved models, on exactly all test images."""

import lazy_loader

# What the user has to fix is reported before TensorFlow is imported.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
