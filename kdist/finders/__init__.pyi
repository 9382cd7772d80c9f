from .advice import Advice as Advice
from .batch_size import BatchSize as BatchSize
from .memory import MemoryEstimate as MemoryEstimate
from .plan import Plan as Plan
from .rate_curve import RateCurve as RateCurve
