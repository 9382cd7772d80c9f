"""The kinds of sweeps."""

from .accuracy import AccuracySweep
from .experiment import Experiment
from .scaling import ScalingSweep
from .throughput import ThroughputSweep

EXPERIMENTS: dict[str, type[Experiment]] = {
    one.kind: one for one in (ThroughputSweep, AccuracySweep, ScalingSweep)
}
"""Each kind by the name that `sweep.json` has for it."""
