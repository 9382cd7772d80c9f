"""Computations on tensors, used by the layers and the strategy."""
