"""Child processes with their GPUs and cores. The command `kdist launch` is `workers/launcher.py`.

No module here imports TensorFlow.
"""
