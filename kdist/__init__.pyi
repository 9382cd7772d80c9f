from . import callbacks as callbacks
from . import data as data
from . import evaluation as evaluation
from . import finders as finders
from . import layers as layers
from . import models as models
from . import optimizers as optimizers
from . import schedules as schedules
from . import study as study
from . import tracking as tracking
from . import training as training
from .batch_norm.convert import convert_batch_norm as convert_batch_norm
from .batch_norm.recalibrate import recalibrate_batch_norm as recalibrate_batch_norm
from .check.explain import explain as explain
from .check.training import check_model as check_model
from .distribute.mirrored_strategy import MirroredStrategy as MirroredStrategy
from .distribute.multi_worker_strategy import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from .distribute.saved_models import load_model as load_model
from .finders.batch_size import find_batch_size as find_batch_size
from .finders.learning_rate import find_learning_rate as find_learning_rate
from .optimizers.scaling import scale_learning_rate as scale_learning_rate

__version__: str
