"""Statistics of runs: spreads, fits and correlations, from plain numbers."""
