from .factory import tracking as tracking
