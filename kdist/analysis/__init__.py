"""Statistics of runs: spreads, fits and correlations of plain numbers."""
