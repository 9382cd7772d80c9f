"""Computations on tensors that the layers and the strategy are made of."""
