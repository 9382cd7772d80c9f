from .checkpoint_file import CheckpointFile as CheckpointFile
from .checkpoint_file import DamagedCheckpointError as DamagedCheckpointError
from .checkpoint_file import checkpoint_files as checkpoint_files
from .export import export_model as export_model
