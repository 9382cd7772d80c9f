"""Callbacks for `keras.Model.fit`: images per second, time to accuracy, total time."""

from .early_stopping import StopAtAccuracy
from .throughput import PrintThroughput
from .total_time import PrintTotalTime

__all__ = ["PrintThroughput", "PrintTotalTime", "StopAtAccuracy"]
