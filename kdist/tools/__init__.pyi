from . import evaluate as evaluate
from . import find as find
