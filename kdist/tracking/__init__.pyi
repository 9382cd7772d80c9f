from .trackers import tracking as tracking
