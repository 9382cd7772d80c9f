"""Child processes, and the GPUs and cores of each.

No module here imports TensorFlow.
"""
