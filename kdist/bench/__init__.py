"""`kdist bench`: compare the speed of kdist, stock Keras and PyTorch."""
