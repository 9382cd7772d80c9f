from .evaluation import Evaluation as Evaluation
from .options import EvaluateOptions as EvaluateOptions
from .run import evaluate as evaluate
