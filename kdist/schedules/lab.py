"""Numbers of the course's lab that kdist grew from."""

LAB_EPOCHS = (15, 25, 35)
"""The epochs, from 0, at whose beginning the lab divides its learning rate by 10."""
