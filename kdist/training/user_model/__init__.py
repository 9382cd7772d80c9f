"""A model and data of the user's own, from the files that a command line names."""
