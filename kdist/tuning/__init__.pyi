from .hypermodel import WideResNetHyperModel as WideResNetHyperModel
from .loading import tuner_of as tuner_of
from .oracles import make_oracle as make_oracle
from .replica_tuner import ReplicaTuner as ReplicaTuner
from .run import tune as tune
from .search import Search as Search
from .space import SearchSpace as SearchSpace
from .user_hypermodel import UserHyperModel as UserHyperModel
