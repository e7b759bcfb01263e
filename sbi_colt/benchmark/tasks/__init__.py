"""Tasks with known posteriors."""
