"""Batch norms found, converted, recalibrated and watched."""
