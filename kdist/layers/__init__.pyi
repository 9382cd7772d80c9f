from .local_response_normalization import (
    LocalResponseNormalization as LocalResponseNormalization,
)
from .scaled_bias import ScaledBias as ScaledBias
from .sync_batch_normalization import SyncBatchNormalization as SyncBatchNormalization
