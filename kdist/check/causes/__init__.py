"""Causes of differences: each a function from the evidence to what it shows, or nothing."""
