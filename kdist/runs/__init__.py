"""Run folders: written by training, read by sweeps and reports."""
