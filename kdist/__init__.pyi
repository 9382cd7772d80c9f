from . import callbacks as callbacks
from . import data as data
from . import layers as layers
from . import models as models
from . import optimizers as optimizers
from . import study as study
from . import tools as tools
from . import tracking as tracking
from . import training as training
from .layers.convert_batch_norm import convert_batch_norm as convert_batch_norm
from .layers.recalibrate_batch_norm import recalibrate_batch_norm as recalibrate_batch_norm
from .optimizers.scaling import scale_learning_rate as scale_learning_rate
from .strategies.load_model import load_model as load_model
from .strategies.mirrored_strategy import MirroredStrategy as MirroredStrategy
from .strategies.prepare_tensorflow import prepare_tensorflow as prepare_tensorflow
from .tools.check.check_model import check_model as check_model
from .tools.check.explain import explain as explain
from .tools.find.batch_size import find_batch_size as find_batch_size
from .tools.find.learning_rate import find_learning_rate as find_learning_rate
from .workers.multi_worker_strategy import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)

__version__: str
