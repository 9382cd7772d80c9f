"""Track a run with Weights & Biases or TensorBoard.

Begin with `tracker.py`, the base class.
"""

import lazy_loader

# wandb takes a second to import, TensorBoard several seconds: each is imported on its first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
