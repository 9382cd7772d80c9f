"""Several workers: processes that train one model together."""
