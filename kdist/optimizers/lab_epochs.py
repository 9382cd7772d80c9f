"""Constants of the course's lab."""

LAB_EPOCHS = (15, 25, 35)
"""The epochs, counted from 0, at which the lab divides its learning rate by 10."""
