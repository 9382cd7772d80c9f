from .export import export_model as export_model
from .store import CheckpointFile as CheckpointFile
from .store import DamagedCheckpointError as DamagedCheckpointError
from .store import checkpoint_files as checkpoint_files
