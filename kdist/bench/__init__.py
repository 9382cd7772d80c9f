"""`kdist bench`: kdist against stock Keras and PyTorch, interleaved in one run."""
