"""`kdist report`: runs, sweeps and searches as one HTML file."""
