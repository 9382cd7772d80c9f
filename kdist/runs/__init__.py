"""A run's folder: written by training, read by sweeps and reports."""
