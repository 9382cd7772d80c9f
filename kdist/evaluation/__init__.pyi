from .options import EvaluateOptions as EvaluateOptions
from .run import evaluate as evaluate
from .saved_model import Evaluation as Evaluation
