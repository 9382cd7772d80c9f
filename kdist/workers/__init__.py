"""Several workers: processes that train the same model together."""
