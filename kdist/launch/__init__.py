"""Child processes, and `kdist launch`, which starts a program on several workers.

Never imports TensorFlow.
"""
