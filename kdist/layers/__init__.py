"""Batch norm: its step, its diagnosis and its recalibration."""
