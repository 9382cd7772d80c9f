from .local_response_normalization import (
    LocalResponseNormalization as LocalResponseNormalization,
)
from .sync_batch_normalization import SyncBatchNormalization as SyncBatchNormalization
