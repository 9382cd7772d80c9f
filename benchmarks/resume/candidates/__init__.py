"""What saves and resumes a training: kdist, and its peers. To add one, add it here."""

from .backup_and_restore import BackupAndRestore
from .base import Candidate, Values
from .checkpoint_manager import CheckpointManager
from .kdist_checkpoint import KdistCheckpoint
from .orbax_callback import OrbaxCallback
from .orbax_manager import OrbaxManager

CANDIDATES: tuple[Candidate, ...] = (
    KdistCheckpoint(),
    BackupAndRestore(),
    CheckpointManager(),
    OrbaxManager(),
    OrbaxCallback(),
)

__all__ = ["CANDIDATES", "Candidate", "Values"]
