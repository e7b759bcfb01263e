"""The grid: which cells are measured, their rows in a CSV file, and the runner."""
