"""Charts of runs and sweeps, in Vega-Lite."""
