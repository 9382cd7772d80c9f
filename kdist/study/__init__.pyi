from .hypermodels import UserHyperModel as UserHyperModel
from .hypermodels import WideResNetHyperModel as WideResNetHyperModel
from .loading import tuner_of as tuner_of
from .oracles import make_oracle as make_oracle
from .run import tune as tune
from .search import Search as Search
from .space import SearchSpace as SearchSpace
from .tuner import ReplicaTuner as ReplicaTuner
