"""Callbacks for `keras.Model.fit`: images per second, time to accuracy, total time, batch norm."""

from .batch_norm_monitor import BatchNormMonitor
from .early_stopping import StopAtAccuracy
from .gradient_noise_scale import GradientNoiseScale
from .throughput import PrintThroughput
from .total_time import PrintTotalTime
from .training_data import SaveTrainingData

__all__ = [
    "BatchNormMonitor",
    "GradientNoiseScale",
    "PrintThroughput",
    "PrintTotalTime",
    "SaveTrainingData",
    "StopAtAccuracy",
]
