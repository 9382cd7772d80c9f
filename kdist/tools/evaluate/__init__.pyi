from .evaluate_options import EvaluateOptions as EvaluateOptions
from .evaluate_run import evaluate as evaluate
from .saved_models import Evaluation as Evaluation
