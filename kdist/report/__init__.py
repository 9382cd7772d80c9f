"""`kdist report`: runs, sweeps and searches in an HTML file.

Begin with `write_report.py`.
"""
