from .augmentation import random_flip_and_shift as random_flip_and_shift
from .batches import evaluation_batches as evaluation_batches
from .batches import training_batches as training_batches
from .image_data import ImageData as ImageData
from .sources import cifar10 as cifar10
from .sources import fashion_mnist as fashion_mnist
from .standardization import Standardization as Standardization
