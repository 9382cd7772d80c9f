from .config import TrainConfig as TrainConfig
from .run import train as train
