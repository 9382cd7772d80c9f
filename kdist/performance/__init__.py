"""Estimate the speed of hardware and models, and choose settings by it."""
