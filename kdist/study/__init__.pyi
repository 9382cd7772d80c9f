from .run_trials import Outcome as Outcome
from .search_run import tune as tune
from .search_settings import Search as Search
from .search_space import SearchSpace as SearchSpace
