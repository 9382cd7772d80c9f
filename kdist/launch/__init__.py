"""Child processes, and `kdist launch` for programs on several workers.

No module here imports TensorFlow.
"""
