from .config import TrainConfig as TrainConfig
from .resume import resume_run as resume_run
from .run import train as train
