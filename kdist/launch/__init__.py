"""Starts a program on several workers: `kdist launch`. Never imports TensorFlow."""
