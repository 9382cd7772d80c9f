from . import callbacks as callbacks
from . import data as data
from . import errors as errors
from . import models as models
from . import schedules as schedules
from .scaling import scale_learning_rate as scale_learning_rate
from .strategy import MirroredStrategy as MirroredStrategy
