"""`kdist report`: runs, sweeps and typed numbers as one HTML file."""
