from .config import TrainConfig as TrainConfig
from .resume import resume_run as resume_run
from .train_run import train as train
