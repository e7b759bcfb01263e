"""The grid: which cells are measured, their rows, and the runner."""
