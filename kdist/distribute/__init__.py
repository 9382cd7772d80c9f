"""The strategy, and the step that is the same on any number of replicas."""
