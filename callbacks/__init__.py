"""Callbacks for `keras.Model.fit`: throughput, time to accuracy, total time, CSV, batch norm."""

from .batch_norm_monitor import BatchNormMonitor
from .gradient_noise_scale import GradientNoiseScale
from .print_throughput import PrintThroughput
from .print_total_time import PrintTotalTime
from .save_training_data import SaveTrainingData
from .stop_at_accuracy import StopAtAccuracy
from .stop_at_non_finite import StopAtNonFinite

__all__ = [
    "BatchNormMonitor",
    "GradientNoiseScale",
    "PrintThroughput",
    "PrintTotalTime",
    "SaveTrainingData",
    "StopAtAccuracy",
    "StopAtNonFinite",
]
