"""Child processes, and the GPUs and cores of each.

The command `kdist launch` is in `workers/launcher.py`. No module here imports TensorFlow.
"""
