from .export import export_model as export_model
from .generation import DamagedGenerationError as DamagedGenerationError
from .generation import Generation as Generation
from .nonfinite import NonFiniteWeightsError as NonFiniteWeightsError
from .store import CheckpointStore as CheckpointStore
from .store import generations as generations
