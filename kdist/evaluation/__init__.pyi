from .evaluate_run import evaluate as evaluate
from .run_models import EvaluateOptions as EvaluateOptions
from .run_models import Evaluation as Evaluation
