"""`kdist find`: batch size, learning rate, memory, and a plan for more replicas."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
