"""Checkpoints of a training: listing, verification and export.

A checkpoint holds the whole state of a run, so that the run can be resumed.
`kdist.callbacks.Checkpoint` writes and restores checkpoints.
"""

import lazy_loader

# Only the export imports TensorFlow. Checkpoints are listed and verified without it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
