"""Checkpoints of a training: what makes a run what it is, saved so that it can be resumed.

`kdist.callbacks.Checkpoint` writes and restores them. What is here reads them.
"""

import lazy_loader

# A checkpoint is listed and verified without TensorFlow, which is imported for exports alone.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
