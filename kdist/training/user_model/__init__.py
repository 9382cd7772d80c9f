"""The user's own model and data, from the files that a command line names."""
