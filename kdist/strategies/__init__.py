"""`MirroredStrategy`, and the step whose result is the same on any number of replicas."""
