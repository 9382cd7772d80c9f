from .evaluate_options import EvaluateOptions as EvaluateOptions
from .evaluate_run import evaluate as evaluate
from .evaluator import Evaluation as Evaluation
