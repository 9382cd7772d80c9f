from .make_trackers import tracking as tracking
