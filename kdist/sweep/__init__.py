"""`kdist sweep`: an experiment of many runs, and how sure its result is."""
