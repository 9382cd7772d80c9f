from .local_response_normalization import (
    LocalResponseNormalization as LocalResponseNormalization,
)
