"""Callbacks for `keras.Model.fit`: throughput, accuracy, time, CSV, telemetry, checkpoints."""

from ..layers.histogram import Histogram
from .batch_norm_monitor import BatchNormMonitor
from .checkpoint import Checkpoint
from .gradient_noise_scale import GradientNoiseScale
from .print_throughput import PrintThroughput
from .print_total_time import PrintTotalTime
from .save_training_data import SaveTrainingData
from .step_measurement import LayerNorms, StepMeasurement
from .stop_at_accuracy import StopAtAccuracy
from .stop_at_non_finite import StopAtNonFinite
from .training_telemetry import TrainingTelemetry

__all__ = [
    "BatchNormMonitor",
    "Checkpoint",
    "GradientNoiseScale",
    "Histogram",
    "LayerNorms",
    "PrintThroughput",
    "PrintTotalTime",
    "SaveTrainingData",
    "StepMeasurement",
    "StopAtAccuracy",
    "StopAtNonFinite",
    "TrainingTelemetry",
]
