from .batch_size import BatchSize as BatchSize
from .rate_curve import RateCurve as RateCurve
