"""Strategies, the devices that they use, and loading of saved models."""
