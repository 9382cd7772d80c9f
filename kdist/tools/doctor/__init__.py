"""`kdist doctor`: check that this machine is ready for training, and name remedies."""
