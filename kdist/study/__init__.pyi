from .search_models import UserHyperModel as UserHyperModel
from .search_models import WideResNetHyperModel as WideResNetHyperModel
from .search_oracles import make_oracle as make_oracle
from .search_run import tune as tune
from .search_run import tuner_of as tuner_of
from .search_settings import Search as Search
from .search_space import SearchSpace as SearchSpace
from .search_tuner import ReplicaTuner as ReplicaTuner
