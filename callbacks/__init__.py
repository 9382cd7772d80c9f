"""Callbacks for `keras.Model.fit`: throughput, accuracy, time, CSV, telemetry, checkpoints."""

from .batch_norm_monitor import BatchNormMonitor
from .checkpoint import Checkpoint
from .print_throughput import PrintThroughput
from .print_total_time import PrintTotalTime
from .save_training_data import SaveTrainingData
from .stop_at_accuracy import StopAtAccuracy
from .stop_at_non_finite import StopAtNonFinite
from .training_telemetry import StepMeasurement, TrainingTelemetry

__all__ = [
    "BatchNormMonitor",
    "Checkpoint",
    "PrintThroughput",
    "PrintTotalTime",
    "SaveTrainingData",
    "StepMeasurement",
    "StopAtAccuracy",
    "StopAtNonFinite",
    "TrainingTelemetry",
]
