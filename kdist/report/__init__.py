"""`kdist report`: runs, sweeps, searches and CSV files as one HTML file."""
