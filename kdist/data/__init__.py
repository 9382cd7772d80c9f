"""Data sets, and input pipelines for training and evaluation.

`image_files.py` reads the data sets, and `image_batches.py` makes the pipelines.
"""

import lazy_loader

# The data sets need only NumPy. TensorFlow is imported when a pipeline is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
