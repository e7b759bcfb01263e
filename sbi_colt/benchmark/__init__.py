"""Tasks with known posteriors, for measuring false alarms and power.

Nothing in the core imports this package.
"""
