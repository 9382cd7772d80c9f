"""Where a run can be watched: Weights & Biases, TensorBoard, a table."""

import lazy_loader

# wandb takes a second to import, TensorBoard seconds: each is imported when it is asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
