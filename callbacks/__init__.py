"""Callbacks for `keras.Model.fit`: throughput, accuracy, time, CSV, batch norm, checkpoints."""

from .batch_norm_monitor import BatchNormMonitor
from .checkpoint import Checkpoint
from .gradient_noise_scale import GradientNoiseScale
from .print_throughput import PrintThroughput
from .print_total_time import PrintTotalTime
from .save_training_data import SaveTrainingData
from .stop_at_accuracy import StopAtAccuracy
from .stop_at_non_finite import StopAtNonFinite

__all__ = [
    "BatchNormMonitor",
    "Checkpoint",
    "GradientNoiseScale",
    "PrintThroughput",
    "PrintTotalTime",
    "SaveTrainingData",
    "StopAtAccuracy",
    "StopAtNonFinite",
]
