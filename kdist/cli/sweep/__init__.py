"""`kdist sweep`: a file per kind of sweep; parses and calls, no logic."""
